"""Plans for a release of the chart on Kubernetes. Pure."""
