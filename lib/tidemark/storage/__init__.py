"""The ``Disk`` seam, its implementation in memory, and walks over batches in files."""
