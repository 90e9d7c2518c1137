"""PlanError: there is no valid plan for an input."""


class PlanError(Exception):
    """Impossible plan. ``where`` is the input at fault, ``remedy`` a next step; '' for none."""

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy
