"""What the pages share: permissions, tabs, charts, filters, confirmations and text."""
