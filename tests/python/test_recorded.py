"""tests/data/resnet18.json says what torchvision's ResNet-18 computes, and notices what differs."""

import importlib.util
import math
import os
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import common  # noqa: E402
import recorded  # noqa: E402

HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "torchvision"))
RECORD = common.read_json(os.path.join(ROOT, "tests", "data", "resnet18.json"))


class TheFile(unittest.TestCase):
    def test_it_holds_the_published_number_of_parameters(self):
        counts = [math.prod(parameter["shape"]) for parameter in RECORD["parameters"]]
        self.assertEqual(sum(counts), 11689512)
        self.assertEqual(RECORD["parameter_count"], 11689512)
        self.assertEqual(len(counts), 62)

    def test_every_parameter_has_a_digest_of_each_kind(self):
        names = [parameter["name"] for parameter in RECORD["parameters"]]
        for kind in ("gradients", "weights", "moved"):
            self.assertEqual(list(RECORD[kind]), names)

    def test_scales_have_so_few_bits_that_the_formula_is_exact(self):
        for parameter in RECORD["parameters"]:
            scaled = parameter["scale"] * 2**20
            self.assertEqual(scaled, int(scaled))
            self.assertLess(scaled, 2**20)

    def test_it_explains_itself(self):
        self.assertEqual(RECORD["explanation"], recorded.EXPLANATION)


@unittest.skipUnless(HAS_TORCH, "needs torch and torchvision")
class TheValues(unittest.TestCase):
    def problems(self, dtype, **changes):
        """Names of the values in which a fresh run is out of tolerance."""
        import torch

        column = ("float32", "float64").index(dtype)
        stream = changes.pop("stream", RECORD["image_stream"])
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            run = recorded.run_recorded(getattr(torch, dtype), stream, **changes)
        finally:
            torch.set_num_threads(threads)
        found = []

        def compare(what, value, number):
            expected, *tolerances = number
            if not abs(value - expected) <= tolerances[column]:
                found.append(what)

        def compare_digest(what, tensor, digest, p):
            values = tensor.double().flatten()
            weights = recorded.uniform(RECORD["projection_stream"] + p, len(values)) - 0.5
            compare(f"{what}.sum", values.sum().item(), digest["sum"])
            compare(f"{what}.l2", values.square().sum().sqrt().item(), digest["l2"])
            compare(f"{what}.dot", (values * weights).sum().item(), digest["dot"])
            for index, *number in digest["elements"]:
                compare(f"{what}[{index}]", values[index].item(), number)

        for step, number in enumerate(RECORD["losses"]):
            compare(f"losses[{step}]", run["losses"][step], number)
        compare_digest("logits", run["logits"], RECORD["logits"], 0)
        for kind in ("gradients", "weights", "moved"):
            for p, (name, digest) in enumerate(RECORD[kind].items()):
                compare_digest(f"{kind}.{name}", run[kind][name], digest, p)
        for name, digest in RECORD["batch_norm"].items():
            compare_digest(f"batch_norm.{name}", run["batch_norm"][name], digest, 0)
        return found

    def test_a_fresh_run_agrees_in_float64(self):
        self.assertEqual(self.problems("float64"), [])

    def test_a_fresh_run_agrees_in_float32(self):
        self.assertEqual(self.problems("float32"), [])

    def test_other_images_are_noticed(self):
        stream = RECORD["image_stream"] + recorded.RECORD_STEPS
        found = self.problems("float32", stream=stream)
        for what in ("losses[0]", "logits.dot", "gradients.conv1.weight.l2"):
            self.assertIn(what, found)

    def test_an_optimiser_of_other_settings_is_noticed(self):
        noticed = {"float64": "moved.conv1.weight.l2", "float32": "moved.fc.weight.dot"}
        for dtype, what in noticed.items():
            with self.subTest(dtype):
                found = self.problems(dtype, betas=(0.9, 0.99))
                self.assertIn(what, found)
                self.assertNotIn("gradients.conv1.weight.l2", found)

    def test_the_hash_is_the_one_in_words(self):
        for p, i in ((0, 0), (61, 999), (1000, 12287), (2000, 2359295)):
            h = (i * 2654435761 + p * 40503 + 12345) % 2**32
            h ^= h >> 16
            h = h * 0x85EBCA6B % 2**32
            h ^= h >> 13
            h = h * 0xC2B2AE35 % 2**32
            h ^= h >> 16
            self.assertEqual(recorded.uniform(p, i + 1)[i].item(), h / 2**32)


if __name__ == "__main__":
    unittest.main()
