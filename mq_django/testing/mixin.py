"""The test kit for classes of unittest and Django."""

import sys
import unittest

from mq_django.testing.kit import MQ


class MQTestMixin(unittest.TestCase):
    """Gives each test of a class the attribute `mq`, with the queues of this test.

    For `unittest.TestCase`, all of Django's test cases, and `unittest.IsolatedAsyncioTestCase`:

        class CheckoutTests(MQTestMixin, TestCase):
            def test_an_order_is_confirmed(self):
                self.client.post("/checkout/")
                self.mq.commit()
                self.mq.run()
    """

    mq: MQ

    # Not in setUp(), which a class may override without calling super().
    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test with its queues.

        Args:
            result: as for `unittest.TestCase.run`.
        """
        self.mq = MQ()
        try:
            self.mq.start()
        except Exception:
            if result is None:
                raise
            result.startTest(self)
            result.addError(self, sys.exc_info())
            result.stopTest(self)
            return result
        try:
            return super().run(result)
        finally:
            self.mq.stop()

    def debug(self) -> None:
        """Run the test with its queues, without collecting its result."""
        with MQ() as self.mq:
            super().debug()
