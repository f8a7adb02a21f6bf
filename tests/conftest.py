"""What all tests share: how hypothesis searches, and stand-ins for what takes long."""

import pytest
from hypothesis import HealthCheck, settings
from markupsafe import Markup

# No deadline: the first call of an operation in torch takes longer than a thousand later ones.
settings.register_profile("encouraging", deadline=None, print_blob=True, max_examples=40,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("encouraging")


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their figures, which take most of the time, for tests that look at other things."""
    from encouraging.report.drawing import panels

    monkeypatch.setattr(panels, "inline", lambda panel: Markup())
