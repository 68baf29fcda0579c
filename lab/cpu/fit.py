# SPDX-License-Identifier: Apache-2.0
"""Fit the polynomials of src/engines/cpu/kernels/wide/f32_activation.h and f32_attention.h (numpy only).

  gelu(x) = max(x, 0) - g(|x|),  g(t) = t * Phi(-t),  on [0, T] in u = t * (2 / T) - 1, and g = g(T) past T
  2^f on [-0.5, 0.5], relative error

Fits by iteratively reweighted least squares on Chebyshev nodes (close to minimax), rounds the monomial
coefficients to float32 and prints them with the errors that float32 Horner evaluation then makes.
"""
import math

import numpy as np


def fit(function, low, high, degree, weigh=lambda x, y: np.ones_like(y)):
    nodes = np.cos((np.arange(6000) + 0.5) * np.pi / 6000)
    x = low + (nodes + 1) * (high - low) / 2
    y = np.array([function(v) for v in x])
    scale = weigh(x, y)
    weight = np.ones_like(y)
    best = None
    for _ in range(300):
        c = np.polynomial.chebyshev.chebfit(nodes, y, degree, w=np.sqrt(weight) * scale)
        error = np.abs(np.polynomial.chebyshev.chebval(nodes, c) - y) * scale
        if best is None or error.max() < best[0]:
            best = (error.max(), c)
        weight *= (error / error.max() + 0.02) ** 0.5
        weight /= weight.mean()
    return best[0], np.polynomial.chebyshev.cheb2poly(best[1])


def horner32(coefficients, u):
    acc = np.full_like(u, np.float32(coefficients[-1]))
    for c in coefficients[-2::-1]:
        acc = np.float32(acc.astype(np.float64) * u + np.float64(np.float32(c)))
    return acc


def show(name, coefficients):
    print(name, ", ".join(f"{np.float32(c):.9e}f" for c in coefficients))


def main():
    for top, degree in ((5.5, 16), (5.6, 16), (5.5, 17)):
        error, poly = fit(lambda t: t * 0.5 * math.erfc(t / math.sqrt(2)), 0, top, degree)
        x = np.linspace(-8, 8, 400001).astype(np.float32)
        t = np.minimum(np.abs(x), np.float32(top))
        u = np.float32(t.astype(np.float64) * np.float32(2 / top) - 1)
        ours = np.maximum(x, 0) - horner32(poly, u)
        true = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.astype(np.float64)])
        print(top, degree, "fit", error, "float32", np.abs(ours - true).max())
        show("gelu", poly)
    for degree in (5, 6):
        error, poly = fit(lambda f: 2.0**f, -0.5, 0.5, degree, lambda x, y: 1 / y)
        poly = poly * 2.0 ** np.arange(degree + 1)  # from u in [-1, 1] to f in [-0.5, 0.5]
        f = np.linspace(-0.5, 0.5, 200001).astype(np.float32)
        true = 2.0 ** f.astype(np.float64)
        print(degree, "fit", error, "float32", np.abs(horner32(poly, f) / true - 1).max())
        show("exp2", poly)
    # weights of bf16 attention: 2^f on [0, 1), exactly 1 at 0: 1 + f h(f)
    f = np.linspace(1e-6, 1, 200001)
    error, poly = fit(lambda v: (2.0**v - 1) / v, 0, 1, 2, lambda x, y: x / 2.0**x)
    u = np.polynomial.Polynomial(poly)(np.polynomial.Polynomial([-1, 2])).coef  # in f, from u = 2 f - 1
    print(3, "fit", np.abs((1 + f * np.polynomial.polynomial.polyval(f, u)) / 2.0**f - 1).max())
    show("exp2, degree 3", [1.0, *u])


main()
