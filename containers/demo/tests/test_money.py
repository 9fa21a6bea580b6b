import unittest

from tally.money import format_amount, parse_amount


class Money(unittest.TestCase):
    def test_reads_whole_and_decimal_amounts(self) -> None:
        self.assertEqual(1200, parse_amount("12"))
        self.assertEqual(1250, parse_amount(" 12.50 "))

    def test_refuses_what_is_not_an_amount(self) -> None:
        for text in ("", "12.5", "-1", "1e3", "ten"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                parse_amount(text)

    def test_writes_two_decimals(self) -> None:
        self.assertEqual("0.05", format_amount(5))
        self.assertEqual("-12.50", format_amount(-1250))
