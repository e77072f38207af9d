// EM routing of one token. The equations are those of capsnmt.routing.em.em_routing, and those of
// its gradient.
//
// For W output capsules n at a time the votes of all inputs fit in the first cache. So M-step, the
// functions of n and E-step are one pass over the votes, block after block, and the operator is T
// passes. The one thing that a softmax over n needs of other blocks, the sum of a row, is divided
// by in the next pass: C[i,n] = e[i,n] / sum_n e[i,n].
#pragma once

#include "tile.h"

namespace {

constexpr float HALF_LOG_2PI = 0.918938533204672741780f;

// One iteration: its coefficients, and what its M-step found.
struct Iterate {
    vec* C;                     // [blocks][I], or [I] where all blocks share it (step = 0); the
    long step;                  // E-step leaves e, and the next pass over the votes divides it
    vec *r, *inverse_mass;      // [blocks]
    vec *A, *not_A, *cost;      // [blocks]: A, 1 - A, chi / r
    vec *mu, *residual;         // [blocks][D]: residual = sum_i R X, 0 but for the rounding of mu
    vec *var, *precision;       // [blocks][D]: var without its floor, 1 / (var + floor)
};

// The gradient of R is a quadratic function of X = V - mu, and so it is not stored:
// g_R[i,n] = c0[n] + sum_d X (c1[n,d] + X c2[n,d]).
struct Quadratic {
    vec *c0, *c1, *c2;  // [blocks], [blocks][D], [blocks][D]
};

// INPUTS, WIDTH: I and D, 0 for any. ACTIVE: there is an input activation.
template <int INPUTS, int WIDTH, bool ACTIVE>
struct Em {
    const Call& call;
    const Size<INPUTS> I;
    const Size<WIDTH> D;
    const long T, blocks;
    vec *votes_memory, *capsules_memory, *g_votes_memory;
    vec *beta_a, *beta_u, *real;   // [blocks]; real is 1 in the lanes below N, else 0
    vec *g_beta_a, *g_beta_u;      // [blocks]: sums over the tokens of a chunk
    Tile V, a, g_a;                // rows (i, d), i, i
    Iterate* iterates;             // T in a backward pass, else 2
    Quadratic quadratics[2];       // of iteration t at t % 2
    vec *gL, *sums, *zeros;        // of one block: [I], [1 + 2 D], [D]
    RowSums rows;
    float *dots;                   // [I]: sum_n C g_C

    Em(const Call& call, Arena& arena, bool backward)
        : call(call), I(call.I), D(call.D), T(call.T), blocks(blocks_of(call)) {
        long copied = in_place(call) ? 0 : blocks * D;
        votes_memory = arena.take(copied * I);
        capsules_memory = arena.take(copied);
        g_votes_memory = arena.take(backward ? copied * I : 0);
        beta_a = arena.take(blocks);
        beta_u = arena.take(blocks);
        real = arena.take(blocks);
        a = scratch_tile(arena.take(ACTIVE ? blocks * I : 0), I);
        g_a = scratch_tile(arena.take(ACTIVE && backward ? blocks * I : 0), I);
        gL = arena.take(I);
        sums = arena.take(GROUP * (1 + 2 * D));
        zeros = arena.take(D);
        rows.take(I, arena);
        dots = arena.take_floats(I);
        long kept = backward ? T : 2;  // a forward pass alternates between two
        iterates = static_cast<Iterate*>(arena.take_bytes(sizeof(Iterate) * kept));
        for (long t = 0; t < kept; ++t) {
            Iterate now;
            now.step = t ? I : 0;
            now.C = arena.take(t ? blocks * I : I);
            now.r = arena.take(blocks);
            now.inverse_mass = arena.take(blocks);
            now.A = arena.take(blocks);
            now.not_A = arena.take(blocks);
            now.cost = arena.take(blocks);
            now.mu = arena.take(blocks * D);
            now.residual = arena.take(blocks * D);
            now.var = arena.take(blocks * D);
            now.precision = arena.take(blocks * D);
            if (arena.memory) iterates[t] = now;
        }
        for (Quadratic& quadratic : quadratics) {
            quadratic.c0 = arena.take(backward ? blocks : 0);
            quadratic.c1 = arena.take(backward ? blocks * D : 0);
            quadratic.c2 = arena.take(backward ? blocks * D : 0);
        }
        if (!arena.memory) return;
        copy_in(call.beta_a, scratch_tile(beta_a, 1), 1, call.N, 1);
        copy_in(call.beta_u, scratch_tile(beta_u, 1), 1, call.N, 1);
        for (long n = 0; n < call.N; ++n) real[n / W][n % W] = 1.0f;
    }

    float temperature(long t) const {  // numerics.inverse_temperature
        return T == 1 ? 1.0f : 1.0f + float((T < 3 ? T : 3) - 1) * float(t) / float(T - 1);
    }

    vec logit_A(const Iterate& now, long t, long block) const {
        vec paid = (beta_u[block] + now.cost[block]) * now.r[block];
        return (beta_a[block] - paid) * temperature(t);
    }

    void read(long token) {
        V = read_tile(call, call.votes, token, I, D, votes_memory);
        if (ACTIVE) read_activation(token);
    }

    void read_activation(long token) {
        if (call.per_pair) {
            copy_in(call.activation + token * I * call.N, a, I, call.N, 1);
            return;
        }
        for (long block = 0; block < blocks; ++block)
            for (long i = 0; i < I; ++i) a.set(block, i, vec{} + call.activation[token * I + i]);
    }

    vec C(const Iterate& now, long block, long i) const {
        return now.C[block * now.step + i];
    }
    vec R(const Iterate& now, long block, long i) const {
        return ACTIVE ? C(now, block, i) * a.get(block, i) : C(now, block, i);
    }

    // r, mu and var of the output capsules of a block (li2019 eq 10, 11).
    //
    // Gradients of up to 1 / floor multiply X = V - mu, which may be no more than the rounding of
    // mu. So the mean is corrected by the mean of X, and what then is left goes into the gradient.
    void moments(const Iterate& now, long block) {
        if (now.step) rows.divide(now.C + block * I, I);
        vec r{};
        for (long i = 0; i < I; ++i) r += R(now, block, i);
        vec mass = at_least(r, MASS_FLOOR), inverse_mass = 1.0f / mass;
        for (long d = 0; d < D; ++d) {
            vec votes{}, rest{}, squares{};
            for (long i = 0; i < I; ++i) votes += R(now, block, i) * V.get(block, i * D + d);
            vec near = votes * inverse_mass;
            for (long i = 0; i < I; ++i) {
                vec X = V.get(block, i * D + d) - near, weighted = R(now, block, i) * X;
                rest += weighted;
                squares += weighted * X;
            }
            vec correction = (rest - near * (mass - r)) * inverse_mass;
            vec mu = near + correction;
            now.mu[block * D + d] = mu;
            now.residual[block * D + d] = rest - r * (mu - near);
            now.var[block * D + d] = squares * inverse_mass - correction * correction;
        }
        now.r[block] = r;
        now.inverse_mass[block] = inverse_mass;
    }

    // The cost and the activation of the output capsules of a block (dou2019 eq 13, 14).
    void activations(const Iterate& now, long t, long block) {
        now.cost[block] = sum_in_parts(D, [=](long d) {
            vec var = now.var[block * D + d] + call.variance_floor;
            now.precision[block * D + d] = 1.0f / var;
            return 0.5f * log_of(var) + (0.5f + HALF_LOG_2PI);
        });
        vec E = exp_of(-logit_A(now, t, block)), A = 1.0f / (1.0f + E);
        now.A[block] = A;
        now.not_A[block] = E * A;
    }

    // e[i,n] = A[n] / sigma[n] exp(-sum_d X^2 / (2 var)), without a softmax's maximum: at D = 1
    // it is below floor^-1/2. Where it is not exact, `e_step_in_logarithms` does it again.
    void e_step(const Iterate& now, const Iterate& next, long block) {
        const vec* __restrict mu = now.mu + block * D;
        const vec* __restrict precision = now.precision + block * D;
        vec* __restrict e = next.C + block * I;
        vec* __restrict lanes = rows.lanes;
        vec weight = real[block] * now.A[block], log2_density{};
        if (WIDTH == 1)
            weight *= square_root(precision[0]);
        else  // a product of D would overflow
            log2_density = (D * (0.5f + HALF_LOG_2PI) - now.cost[block]) * LOG2_E;
        for (long i = 0; i < I; ++i) {
            vec exponent = sum_in_parts(D, [=](long d) {
                vec X = V.get(block, i * D + d) - mu[d];
                return X * X * (precision[d] * (-0.5f * LOG2_E));
            });
            if (WIDTH != 1) exponent += log2_density;
            vec bounded = at_least(WIDTH == 1 ? exponent : at_most(exponent, EXP2_HIGH), EXP2_LOW);
            vec weighted = weight * exp2_of(bounded);
            e[i] = weighted;
            if (WIDTH != 1) {  // a small A would hide the bound from the sum
                ivec beyond = (exponent > EXP2_HIGH) & (real[block] > 0.0f);
                weighted = beyond ? vec{} + __builtin_inff() : weighted;
            }
            lanes[i] += weighted;
        }
    }

    // The E-step (li2019 eq 12) as the eager operator computes it.
    __attribute__((noinline))
    void e_step_in_logarithms(const Iterate& now, const Iterate& next, long t) {
        for (long block = 0; block < blocks; ++block) {
            vec logit = logit_A(now, t, block);
            vec magnitude = logit < 0.0f ? logit : -logit;
            vec log_A = at_most(logit, 0.0f) - log_of(1.0f + exp_of(magnitude));
            for (long i = 0; i < I; ++i) {
                vec log_p = log_A - now.cost[block];
                for (long d = 0; d < D; ++d) {
                    vec X = V.get(block, i * D + d) - now.mu[block * D + d];
                    log_p -= X * X * (0.5f * now.precision[block * D + d]);
                }
                next.C[block * I + i] = log_p;
            }
        }
        rows.exponentiate(next.C, real, blocks, I);
        rows.invert(I);
    }

    long end_of_group(long first) const { return first + GROUP < blocks ? first + GROUP : blocks; }

    void m_step(const Iterate& now, long t, long first) {
        for (long block = first; block < end_of_group(first); ++block) moments(now, block);
        for (long block = first; block < end_of_group(first); ++block) activations(now, t, block);
    }

    // The iteration at index t of a forward pass, in which all but the first share their memory.
    Iterate& at(long t, bool keep) { return iterates[keep || t == 0 ? t : 1]; }

    // Iterations 0 .. T-2, each as one pass over the votes.
    void iterate(bool keep) {
        for (long i = 0; i < I; ++i) {
            iterates[0].C[i] = vec{} + 1.0f / float(call.N);
        }
        for (long t = 0; t + 1 < T; ++t) {
            const Iterate &now = at(t, keep), &next = at(t + 1, keep);
            rows.clear(I);
            for (long first = 0; first < blocks; first += GROUP) {
                m_step(now, t, first);
                for (long block = first; block < end_of_group(first); ++block)
                    e_step(now, next, block);
            }
            if (!rows.invert(I)) e_step_in_logarithms(now, next, t);
        }
    }

    void forward(long token) {
        read(token);
        iterate(false);
        const Iterate& now = at(T - 1, false);
        Tile capsules = result_tile(call, call.capsules, token, 1, D, capsules_memory);
        for (long first = 0; first < blocks; first += GROUP) {
            m_step(now, T - 1, first);
            for (long block = first; block < end_of_group(first); ++block) {
                for (long d = 0; d < D; ++d)
                    capsules.set(block, d, now.A[block] * now.mu[block * D + d]);
                for (long i = 0; i < I; ++i) prefetch_next(call, V, token, block, i);
            }
        }
        write_tile(call, capsules, call.capsules, token, 1, D);
    }

    // The gradients of a block's M-step and of what the E-step makes of it. g_log_A = sum_i g_L;
    // S1[d], S2[d] = sum_i g_L X, sum_i g_L X^2; g_L is the gradient of log A + log p.
    void m_step_gradient(long t, long block, vec g_logit_A, vec g_log_A, const vec* S1,
                         const vec* S2, const vec* g_mu_of_result) {
        const Iterate& now = iterates[t];
        const Quadratic& to = quadratics[t % 2];
        vec r = now.r[block], inverse_mass = now.inverse_mass[block];
        // Where r is below its floor, the mass is a constant.
        vec kept = r < MASS_FLOOR ? vec{} : vec{} + 1.0f;
        vec g_chi = g_logit_A * -temperature(t);
        g_beta_a[block] -= g_chi;
        g_beta_u[block] += g_chi * r;
        vec g_log_sigma = g_chi * r - g_log_A;
        vec c0 = g_chi * (beta_u[block] + now.cost[block]);
        for (long d = 0; d < D; ++d) {
            vec mu = now.mu[block * D + d], precision = now.precision[block * D + d];
            vec g_var = (S2[d] * precision + g_log_sigma) * (0.5f * precision);
            g_var = bound(g_var) * inverse_mass;
            vec g_X = 2.0f * g_var * now.residual[block * D + d] - precision * S1[d];
            vec g_mu = (g_mu_of_result[d] - g_X) * inverse_mass;
            c0 += g_mu * mu * (1.0f - kept) - g_var * now.var[block * D + d] * kept;
            to.c1[block * D + d] = g_mu;
            to.c2[block * D + d] = g_var;
        }
        to.c0[block] = c0;
    }

    vec g_R(long t, long block, long i) const {
        const Quadratic& from = quadratics[t % 2];
        vec gradient = from.c0[block];
        for (long d = 0; d < D; ++d) {
            vec X = V.get(block, i * D + d) - iterates[t].mu[block * D + d];
            gradient += X * (from.c1[block * D + d] + X * from.c2[block * D + d]);
        }
        return gradient;
    }

    vec g_C(long block, long i, vec g_R) const {
        return bound(ACTIVE ? g_R * a.get(block, i) : g_R);
    }

    // The gradient of V by mu and var of iteration t.
    vec g_vote(long t, long block, long i, long d) const {
        const Quadratic& from = quadratics[t % 2];
        vec X = V.get(block, i * D + d) - iterates[t].mu[block * D + d];
        vec slope = from.c1[block * D + d] + X * (2.0f * from.c2[block * D + d]);
        return R(iterates[t], block, i) * slope;
    }

    // Add sum_n C g_C to the rows, for the softmax, and C g_R to the gradient of the activation.
    void add_to_rows(long t, long block) {
        if (t == 0 && !ACTIVE) return;
        vec* __restrict lanes = rows.lanes;
        for (long i = 0; i < I; ++i) {
            vec gradient = g_R(t, block, i), coefficient = C(iterates[t], block, i);
            lanes[i] += coefficient * g_C(block, i, gradient);
            if (!ACTIVE) continue;
            vec later = t == T - 1 ? vec{} : g_a.get(block, i);
            g_a.set(block, i, later + coefficient * gradient);
        }
    }

    // The last M-step and its gradient, as one pass.
    void last_iteration(Tile g_capsules, Tile g_votes) {
        const long t = T - 1;
        const Iterate& now = iterates[t];
        rows.clear(I);
        for (long first = 0; first < blocks; first += GROUP) {
            m_step(now, t, first);
            for (long block = first; block < end_of_group(first); ++block) {
                vec *g_mu = sums, g_A{};
                for (long d = 0; d < D; ++d) {
                    vec g_out = g_capsules.get(block, d);
                    g_A += g_out * now.mu[block * D + d];
                    g_mu[d] = g_out * now.A[block];
                }
                g_A *= now.A[block] * now.not_A[block];
                m_step_gradient(t, block, g_A, vec{}, zeros, zeros, g_mu);
            }
            for (long block = first; block < end_of_group(first); ++block) {
                if (t == 0)
                    for (long i = 0; i < I; ++i)
                        for (long d = 0; d < D; ++d)
                            g_votes.set(block, i * D + d, g_vote(t, block, i, d));
                add_to_rows(t, block);
            }
        }
        rows.totals(dots, I);
    }

    // The gradient of the E-step of iteration t, from C of t+1 to log A + log p; S: its sums.
    void e_step_gradient(long t, long block, Tile g_votes, vec* S) {
        const Iterate &now = iterates[t], &next = iterates[t + 1];
        vec* __restrict gradient = gL;
        vec total{};
        for (long i = 0; i < I; ++i) {  // through the softmax
            vec g = g_C(block, i, g_R(t + 1, block, i)) - dots[i];
            gradient[i] = C(next, block, i) * g;
            total += gradient[i];
        }
        S[0] = total;
        for (long d = 0; d < D; ++d) {
            vec S1{}, S2{}, mu = now.mu[block * D + d], precision = now.precision[block * D + d];
            for (long i = 0; i < I; ++i) {
                vec X = V.get(block, i * D + d) - mu, product = gradient[i] * X;
                S1 += product;
                S2 += product * X;
                vec g = g_vote(t + 1, block, i, d) - product * precision;
                if (t + 2 < T) g += g_votes.get(block, i * D + d);
                g_votes.set(block, i * D + d, g);
            }
            S[1 + d] = S1;
            S[1 + D + d] = S2;
        }
    }

    // The gradient of iteration t < T-1, which made C of t+1, as one pass.
    void earlier_iteration(long t, long token, Tile g_votes) {
        const Iterate& now = iterates[t];
        const long size = 1 + 2 * D;
        rows.clear(I);
        for (long first = 0; first < blocks; first += GROUP) {
            for (long block = first; block < end_of_group(first); ++block)
                e_step_gradient(t, block, g_votes, sums + (block - first) * size);
            for (long block = first; block < end_of_group(first); ++block) {
                vec* S = sums + (block - first) * size;
                vec g_logit_A = S[0] * now.not_A[block];
                m_step_gradient(t, block, g_logit_A, S[0], S + 1, S + 1 + D, zeros);
            }
            for (long block = first; block < end_of_group(first); ++block) {
                for (long i = 0; t == 0 && i < I; ++i) {
                    prefetch_next(call, V, token, block, i);
                    for (long d = 0; d < D; ++d)
                        g_votes.set(block, i * D + d, g_votes.get(block, i * D + d) +
                                                          g_vote(t, block, i, d));
                }
                add_to_rows(t, block);
            }
        }
        rows.totals(dots, I);
    }

    void backward(long token, vec* g_beta_a, vec* g_beta_u) {
        this->g_beta_a = g_beta_a;
        this->g_beta_u = g_beta_u;
        read(token);
        iterate(true);
        Tile g_capsules = read_tile(call, call.g_capsules, token, 1, D, capsules_memory);
        Tile g_votes = result_tile(call, call.g_votes, token, I, D, g_votes_memory);
        last_iteration(g_capsules, g_votes);
        for (long t = T - 2; t >= 0; --t) earlier_iteration(t, token, g_votes);
        write_tile(call, g_votes, call.g_votes, token, I, D);
        if (ACTIVE) write_activation_gradient(token);
    }

    void write_activation_gradient(long token) {
        if (call.per_pair) {
            copy_out(call.g_activation + token * I * call.N, g_a, I, call.N, 1);
            return;
        }
        for (long i = 0; i < I; ++i) {
            vec total{};
            for (long block = 0; block < blocks; ++block) total += g_a.get(block, i);
            call.g_activation[token * I + i] = sum(total);
        }
    }
};

}  // namespace
