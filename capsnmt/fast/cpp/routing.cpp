// The routing operators on a CPU: forward and backward, fp32 or bf16 votes, arithmetic in fp32.
//
// Built by fast/cpp/build.py at first use, for the processor of this machine.
#include "agreement.h"
#include "em.h"

namespace {

template <class Router>
int forward_of(const Call& call) {
    return for_tokens<Router>(
        call, false, [](Router& router, long token, long) { router.forward(token); });
}

template <class Router>
int backward_of(const Call& call) {
    return for_tokens<Router>(
        call, true, [](Router& router, long token, long) { router.backward(token); });
}

template <class Router>
int em_backward_of(const Call& call) {
    long blocks = blocks_of(call), chunks = chunks_of(call);
    // Each chunk adds the gradients of the costs of its tokens, then the chunks are added.
    void* memory = nullptr;
    long bytes = 2 * chunks * blocks * sizeof(vec);
    if (posix_memalign(&memory, sizeof(vec), bytes)) return 1;
    memset(memory, 0, bytes);
    vec* g_betas = static_cast<vec*>(memory);
    int failed = for_tokens<Router>(call, true, [=](Router& router, long token, long chunk) {
        vec* g_beta_a = g_betas + 2 * chunk * blocks;
        router.backward(token, g_beta_a, g_beta_a + blocks);
    });
    for (long chunk = 1; chunk < chunks; ++chunk)
        for (long k = 0; k < 2 * blocks; ++k) g_betas[k] += g_betas[2 * chunk * blocks + k];
    copy_out(call.g_beta_a, scratch_tile(g_betas, 1), 1, call.N, 1);
    copy_out(call.g_beta_u, scratch_tile(g_betas + blocks, 1), 1, call.N, 1);
    free(memory);
    return failed;
}

}  // namespace

// The loops over I are unrolled for 4 and 8 attention heads, as many as base and tiny models have.
#define EM(function)                                                                         \
    if (call->D > 1)                                                                         \
        return call->activation ? function<Em<0, 0, true>>(*call)                            \
                                : function<Em<0, 0, false>>(*call);                          \
    if (call->activation) return function<Em<0, 1, true>>(*call);                            \
    if (call->I == 8) return function<Em<8, 1, false>>(*call);                               \
    if (call->I == 4) return function<Em<4, 1, false>>(*call);                               \
    return function<Em<0, 1, false>>(*call);

extern "C" int em_forward(const Call* call) { EM(forward_of) }
extern "C" int em_backward(const Call* call) { EM(em_backward_of) }

#define AGREEMENT(function, inverted)                            \
    return call->D == 1 ? function<Agreement<1, inverted>>(*call) \
                        : function<Agreement<0, inverted>>(*call);

extern "C" int agreement_forward(const Call* call) { AGREEMENT(forward_of, false) }
extern "C" int agreement_backward(const Call* call) { AGREEMENT(backward_of, false) }
extern "C" int inverted_forward(const Call* call) { AGREEMENT(forward_of, true) }
extern "C" int inverted_backward(const Call* call) { AGREEMENT(backward_of, true) }
