import unittest

from tally.report import read_payments, report

TRIP = ["payer,amount,note\n", "Ada,100.00,hotel\n", "Ben,20.50,taxi\n", "Cleo,7.25,breakfast\n"]


class Report(unittest.TestCase):
    def test_reads_payments(self) -> None:
        self.assertEqual([("Ada", 10000), ("Ben", 2050), ("Cleo", 725)], read_payments(TRIP))

    def test_says_who_owes_what(self) -> None:
        lines = report(TRIP).splitlines()
        self.assertEqual(["Ada gets back 57.40", "Ben owes 22.08", "Cleo owes 35.32"], lines)
