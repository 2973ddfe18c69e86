"""The kit in coroutines. Django cannot send this kind of test case to parallel processes."""

import unittest

from shop.handlers import emails

from mq_django.testing import MQTestMixin

ANN = {"email": "ann@shop.example"}


class Async(MQTestMixin, unittest.IsolatedAsyncioTestCase):
    async def test_coroutines(self):
        await emails.apublish("welcome", ANN, on_commit=False, delay=60)
        await self.mq.aadvance(minutes=2)
        self.assertEqual(len(await self.mq.arun()), 1)
        self.assertEqual(await self.mq.arun_until_idle(), [])
