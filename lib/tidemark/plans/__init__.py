"""Plans of administration: values in, values out, without I/O.

The command line and the controller's REST API read the cluster, make the plan with these functions,
and apply it. A plan that is not possible is a PlanError, which each of them reports in its way.
"""
