"""The module that the shop's worker is started with (`celery -A`)."""

from __future__ import annotations

import os

from tests.browser.shop.factory import create_app

app = create_app(os.environ["BROKER_URL"])
app.set_current()
