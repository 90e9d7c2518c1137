"""Type of bytes that codecs read, in a module that imports nothing."""

Buffer = bytes | bytearray | memoryview
