"""GPT-2's spelling of bytes as printable characters, which byte-level BPE vocabularies use."""

from __future__ import annotations


def _byte_of_character() -> dict[str, int]:
    """Printable bytes spell themselves; the others, in order, are the characters from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_of_character()
_CHARACTERS = {byte: character for character, byte in _BYTES.items()}


def spelled(data: bytes) -> str:
    """How a vocabulary spells ``data``."""
    return "".join(_CHARACTERS[byte] for byte in data)


def spelled_out(token: str) -> str:
    """The text that ``token`` stands for.

    A token with a character outside the alphabet is its own text; bytes that are no UTF-8 become
    U+FFFD. Both are what the ByteLevel decoder of the tokenizers library does.
    """
    try:
        data = bytes(_BYTES[character] for character in token)
    except KeyError:
        return token
    return data.decode("utf-8", errors="replace")
