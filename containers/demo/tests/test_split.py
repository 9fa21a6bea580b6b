import unittest

from tally.split import balances, split_evenly


class Split(unittest.TestCase):
    def test_an_even_amount_is_split_evenly(self) -> None:
        self.assertEqual({"Ada": 50, "Ben": 50}, split_evenly(100, ["Ada", "Ben"]))

    def test_no_cent_is_lost(self) -> None:
        for cents in (1, 100, 101, 725, 2050):
            with self.subTest(cents=cents):
                shares = split_evenly(cents, ["Ada", "Ben", "Cleo"])
                self.assertEqual(cents, sum(shares.values()))
                self.assertLessEqual(max(shares.values()) - min(shares.values()), 1)

    def test_balances_cancel_out(self) -> None:
        payments = [("Ada", 10000), ("Ben", 2050), ("Cleo", 725)]
        self.assertEqual(0, sum(balances(payments).values()))

    def test_nobody_cannot_share(self) -> None:
        with self.assertRaises(ValueError):
            split_evenly(100, [])
