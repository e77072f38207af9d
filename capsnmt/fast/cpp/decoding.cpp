// A step of beam search on a CPU, in fp32: attention to what is cached, and the best continuations.
//
// Built by fast/cpp/build.py like the routing operators. Both read each number once, where torch would
// call several functions that write their results to memory.
#include <stdint.h>
#include <stdlib.h>

#include "row.h"

namespace {

#if defined(__AVX512F__)
INLINE bool any_above(vec x, float bound) {
    return _mm512_cmp_ps_mask(x, _mm512_set1_ps(bound), _CMP_GT_OQ);
}
#elif defined(__AVX__)
INLINE bool any_above(vec x, float bound) {
    return _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(bound), _CMP_GT_OQ));
}
#else
INLINE bool any_above(vec x, float bound) {
    for (int lane = 0; lane < W; ++lane)
        if (x[lane] > bound) return true;
    return false;
}
#endif

// The best candidates of a sentence so far, best first.
struct Best {
    float* scores;
    int64_t *words, *beams;
    long size;
    float worst() const { return scores[size - 1]; }
    void insert(float score, long word, long beam) {
        if (!(score > worst())) return;
        long place = size - 1;
        for (; place > 0 && score > scores[place - 1]; --place) {
            scores[place] = scores[place - 1];
            words[place] = words[place - 1];
            beams[place] = beams[place - 1];
        }
        scores[place] = score;
        words[place] = word;
        beams[place] = beam;
    }
};

// The k best continuations of each sentence: see `choose`.
template <typename T>
void choose_from(const T* logits, const float* totals, long sentences, long beam, long size, long k,
                 long never, long nor, long only, bool normal, float* scores, int64_t* words,
                 int64_t* beams, long threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long b = 0; b < sentences; ++b) {
        Best best = {scores + b * k, words + b * k, beams + b * k, k};
        for (long place = 0; place < k; ++place) {
            best.scores[place] = -__builtin_inff();
            best.words[place] = never;
            best.beams[place] = 0;
        }
        for (long row = 0; row < beam; ++row) {
            const T* x = logits + (b * beam + row) * size;
            float shift = largest(x, size), total = totals[b * beam + row];
            float mass = log_of(vec{} + exponentials(x, size, shift, nullptr))[0];
            if (normal && mass == mass) shift = mass = 0;
            if (mass != mass) {
                for (long place = 0; place < k; ++place) best.scores[place] = mass;
                break;
            }
            auto score = [=](long word) { return number(x + word) - shift - mass + total; };
            if (only >= 0) {
                best.insert(score(only), only, row);
                continue;
            }
            // What is just below the worst candidate by rounding is looked at, and not taken.
            float rounding = 1e-4f + 1e-6f * __builtin_fabsf(shift);
            auto bound = [&] { return best.worst() - total + mass + shift - rounding; };
            auto look = [&](long word) {
                if (word != never && word != nor) best.insert(score(word), word, row);
            };
            long word = 0;
            float low = bound();
            for (; word + W <= size; word += W) {
                if (!any_above(load(x + word), low)) continue;
                for (long lane = 0; lane < W; ++lane) look(word + lane);
                low = bound();
            }
            for (; word < size; ++word) look(word);
        }
    }
}

}  // namespace

// The k best continuations of each sentence: log-softmax of the logits [sentences, beam, size] plus
// the totals [sentences, beam]; if `normal`, the logits are log-probabilities, and stay as they are.
// The logits are fp32, or bf16. The words `never` and `nor` are not chosen; -1 is no word. With
// `only` not -1, no other is. Scores are NaN where a logit is.
extern "C" int choose(const void* logits, const float* totals, int64_t sentences, int64_t beam,
                      int64_t size, int64_t k, int64_t never, int64_t nor, int64_t only,
                      int64_t normal, int64_t bf16, float* scores, int64_t* words, int64_t* beams,
                      int64_t threads) {
    auto from = [&](auto* given) {
        choose_from(given, totals, sentences, beam, size, k, never, nor, only, normal, scores,
                    words, beams, threads);
    };
    if (bf16)
        from(static_cast<const uint16_t*>(logits));
    else
        from(static_cast<const float*>(logits));
    return 0;
}

namespace {

// A tensor [sentences, heads, places, numbers], the last of which lie side by side.
template <typename T>
struct View {
    const T* start;
    int64_t sentence, head, place;
    const T* at(long b, long h) const { return start + b * sentence + h * head; }
};

template <typename T>
int attend_to(View<T> q, View<T> keys, View<T> values, const float* mask, long mask_rows,
              long sentences, long heads, long rows, long slots, long width, long value_width,
              float scale, float* output, long threads) {
    int failed = 0;
#pragma omp parallel for num_threads(threads) if (threads > 1) reduction(| : failed)
    for (long b = 0; b < sentences; ++b) {
        // the places that the hypotheses see, a list of each or one of all
        const long lists = mask && mask_rows > 1 ? mask_rows : 1;
        long* const counts = static_cast<long*>(
            malloc(lists * (slots + 1) * sizeof(long) + (slots + SIDE) * sizeof(float)));
        if (!counts) {
            failed = 1;
            continue;
        }
        long* const places = counts + lists;
        float* const weights = reinterpret_cast<float*>(places + lists * slots);
        for (long list = 0; list < lists; ++list) {
            const float* masked = mask + (b * mask_rows + list) * slots;
            counts[list] = 0;
            for (long slot = 0; slot < slots; ++slot)
                if (!mask || masked[slot] == 0)
                    places[list * slots + counts[list]++] = slot;
        }
        // keys and values of a head are in the nearest cache from its second hypothesis on
        for (long h = 0; h < heads; ++h) {
            for (long row = 0; row < rows; ++row) {
                const long list = row < lists ? row : 0;
                const long count = counts[list], *seen = places + list * slots;
                const T* query = q.at(b, h) + row * q.place;
                const T* key = keys.at(b, h);
                const T* value = values.at(b, h);
                for (long n = 0; n < count; n += SIDE) {
                    const T* one[SIDE];
                    vec products[SIDE] = {};
                    for (long a = 0; a < SIDE; ++a)
                        one[a] = key + seen[n + a < count ? n + a : n] * keys.place;
                    long d = 0;
                    for (; d + W <= width; d += W)
                        for (long a = 0; a < SIDE; ++a)
                            products[a] += load(query + d) * load(one[a] + d);
                    for (long a = 0; a < SIDE; ++a) {
                        float score = fast_sum(products[a]);
                        for (long rest = d; rest < width; ++rest)
                            score += number(query + rest) * number(one[a] + rest);
                        weights[n + a] = score * scale;
                    }
                }
                float shift = largest(weights, count);
                float part = 1 / exponentials(weights, count, shift, weights);
                float* out = output + ((b * rows + row) * heads + h) * value_width;
                long d = 0;
                for (; d + SIDE * W <= value_width; d += SIDE * W) {
                    vec mean[SIDE] = {};
                    for (long n = 0; n < count; ++n)
                        for (long a = 0; a < SIDE; ++a)
                            mean[a] += weights[n] * load(value + seen[n] * values.place + d + a * W);
                    for (long a = 0; a < SIDE; ++a) store(out + d + a * W, mean[a] * part);
                }
                for (; d + W <= value_width; d += W) {
                    vec mean = {};
                    for (long n = 0; n < count; ++n)
                        mean += weights[n] * load(value + seen[n] * values.place + d);
                    store(out + d, mean * part);
                }
                for (; d < value_width; ++d) {
                    float mean = 0;
                    for (long n = 0; n < count; ++n)
                        mean += weights[n] * number(value + seen[n] * values.place + d);
                    out[d] = mean * part;
                }
            }
        }
        free(counts);
    }
    return failed;
}

}  // namespace

// Attention of the queries [sentences, heads, rows, width] to the slots of their sentence, to the
// output [sentences, rows, heads, value_width], in fp32 without gaps.
//
// Keys are [sentences, heads, slots, width], values [.., value_width]; all three are fp32, or bf16.
// The mask [sentences, rows or 1, slots] is 0 where a slot is seen; without one all are.
extern "C" int attend(double scale, void* q, void* k, void* v, const float* mask, int64_t mask_rows,
                      int64_t sentences, int64_t heads, int64_t rows, int64_t slots, int64_t width,
                      int64_t value_width, int64_t q0, int64_t q1, int64_t q2, int64_t k0,
                      int64_t k1, int64_t k2, int64_t v0, int64_t v1, int64_t v2, int64_t bf16,
                      float* output, int64_t threads) {
    if (bf16) {
        typedef const uint16_t T;
        return attend_to<uint16_t>({(T*)q, q0, q1, q2}, {(T*)k, k0, k1, k2}, {(T*)v, v0, v1, v2},
                                   mask, mask_rows, sentences, heads, rows, slots, width,
                                   value_width, scale, output, threads);
    }
    typedef const float T;
    return attend_to<float>({(T*)q, q0, q1, q2}, {(T*)k, k0, k1, k2}, {(T*)v, v0, v1, v2}, mask,
                            mask_rows, sentences, heads, rows, slots, width, value_width, scale,
                            output, threads);
}
