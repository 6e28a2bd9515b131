import unittest

from durations import seconds


class Durations(unittest.TestCase):
    def test_a_number_alone_is_seconds(self) -> None:
        self.assertEqual(seconds("90"), 90)

    def test_one_unit(self) -> None:
        self.assertEqual(seconds("15m"), 900)

    def test_units_add_up(self) -> None:
        self.assertEqual(seconds("1h30m"), 5400)
        self.assertEqual(seconds("1d2h3m4s"), 93784)

    def test_what_makes_no_sense_is_refused(self) -> None:
        for text in ("h", "1x", "m5"):
            with self.subTest(text), self.assertRaises(ValueError):
                seconds(text)
