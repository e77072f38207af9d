// Attention over depth on a CPU, in fp32: each number is read twice, the second time from the nearest
// cache, where torch would stack all values first.
#include <stdint.h>

#include "row.h"

namespace {

// query . x / RMS(x)
INLINE float score_of(const float* x, const float* query, long size) {
    vec dots[SIDE] = {}, squares[SIDE] = {};
    long d = 0;
    for (; d + SIDE * W <= size; d += SIDE * W)
        for (long a = 0; a < SIDE; ++a) {
            vec one = load(x + d + a * W);
            dots[a] += one * load(query + d + a * W);
            squares[a] += one * one;
        }
    float dot = fast_sum(dots[0] + dots[1] + dots[2] + dots[3]);
    float square = fast_sum(squares[0] + squares[1] + squares[2] + squares[3]);
    for (; d < size; ++d) {
        dot += x[d] * query[d];
        square += x[d] * x[d];
    }
    return dot / __builtin_sqrtf(square / size + 1e-6f);
}

}  // namespace

// output[row] = sum_i p_i values[i][row], p = softmax_i(query . values[i][row] / RMS(values[i][row])):
// `count` tensors [rows, size]; `scores` [rows, count] is room for the weights.
extern "C" int mixture(const float* const* values, int64_t count, const float* query, int64_t rows,
                        int64_t size, float* scores, float* output, int64_t threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long row = 0; row < rows; ++row) {
        float* weights = scores + row * count;
        for (long i = 0; i < count; ++i) weights[i] = score_of(values[i] + row * size, query, size);
        float part = 1 / exponentials(weights, count, largest(weights, count), weights);
        float* out = output + row * size;
        long d = 0;
        for (; d + SIDE * W <= size; d += SIDE * W) {
            vec mean[SIDE] = {};
            for (long i = 0; i < count; ++i)
                for (long a = 0; a < SIDE; ++a)
                    mean[a] += weights[i] * load(values[i] + row * size + d + a * W);
            for (long a = 0; a < SIDE; ++a) store(out + d + a * W, mean[a] * part);
        }
        for (; d < size; ++d) {
            float mean = 0;
            for (long i = 0; i < count; ++i) mean += weights[i] * values[i][row * size + d];
            out[d] = mean * part;
        }
    }
    return 0;
}
