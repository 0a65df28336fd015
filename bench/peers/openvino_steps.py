"""OpenVINO's part in bench/peers: one INT4 matrix of 2048 x 2048 times one vector, weights in groups of 128 with
zero points as its model optimizer writes them, compressed in memory. Answers on stdin like bench/steps.c:
    gemv N       N products, one after the other     seconds
usage: openvino_steps.py ROWS COLS threads
SPDX-License-Identifier: Apache-2.0"""
import sys
import time

import numpy as np
import openvino as ov
from openvino import opset13 as ops

GROUP = 128


def model(rows, cols):
    rng = np.random.default_rng(1)
    x = ops.parameter([1, cols], np.float32)
    groups = [rows, cols // GROUP]
    codes = ops.constant(rng.integers(0, 16, [*groups, GROUP], dtype=np.uint8), dtype=ov.Type.u4)
    zeros = ops.constant(np.full([*groups, 1], 8, np.uint8), dtype=ov.Type.u4)
    scales = ops.constant(rng.normal(0.01, 0.001, [*groups, 1]).astype(np.float16))
    w = ops.multiply(ops.subtract(ops.convert(codes, np.float16), ops.convert(zeros, np.float16)), scales)
    w = ops.convert(ops.reshape(w, [rows, cols], False), np.float32)
    return ov.Model([ops.matmul(x, w, False, True)], [x])


def main():
    rows, cols, threads = (int(a) for a in sys.argv[1:4])
    core = ov.Core()
    compiled = core.compile_model(model(rows, cols), "CPU",
                                  {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"})
    request = compiled.create_infer_request()
    x = np.random.default_rng(2).normal(size=(1, cols)).astype(np.float32)
    request.infer([x])
    tensor = ov.Tensor(x, shared_memory=True)
    request.set_input_tensor(tensor)
    for line in sys.stdin:
        command, n = line.split()
        if command != "gemv":
            print("error: no such command", flush=True)
            continue
        start = time.perf_counter()
        for _ in range(int(n)):
            request.infer()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
