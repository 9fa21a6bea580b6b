"""The texts that all ends read: lines of 80 bytes, as source code has them."""


def text_of(size: int) -> str:
    """``size`` bytes of ASCII in lines, the last one complete."""
    line = "x" * 79 + "\n"
    return (line * (size // len(line) + 1))[: size - 1] + "\n"
