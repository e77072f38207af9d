// The softmax of the scores of a chunk of tokens, and the loss of their words.
//
// A row is in the nearest cache while it is read three times; torch would write it in fp32 between.
#include <stdint.h>

#include "row.h"

namespace {

template <typename T>
void softmax_of(T* scores, const int64_t* words, long rows, long size, float* nll, long threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long row = 0; row < rows; ++row) {
        T* x = scores + row * size;
        float shift = largest(x, size);
        float total = exponentials(x, size, shift, nullptr), part = 1 / total;
        nll[row] = log_of(vec{} + total)[0] + (shift - number(x + words[row]));
        long n = 0;
        for (; n + W <= size; n += W) store(x + n, exp_of(load(x + n) - shift) * part);
        for (; n < size; ++n)
            store_one(x + n, exp_of(vec{} + (number(x + n) - shift))[0] * part);
    }
}

}  // namespace

// Put the softmax of each row of `scores` [rows, size], fp32 or bf16, in its place; `nll` gets the
// negative log-probability of the row's word.
extern "C" int softmax(void* scores, const int64_t* words, int64_t rows, int64_t size,
                        int64_t bf16, float* nll, int64_t threads) {
    if (bf16)
        softmax_of(static_cast<uint16_t*>(scores), words, rows, size, nll, threads);
    else
        softmax_of(static_cast<float*>(scores), words, rows, size, nll, threads);
    return 0;
}
