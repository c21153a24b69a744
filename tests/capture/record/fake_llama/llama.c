/* A llama.cpp of eight nodes a layer: the surface that llama-cpp-python binds, and the protocol by which
   ggml-backend.cpp asks a callback: nodes that it does not want are computed with the next one it wants. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct node { char name[64]; const char *op; int work; };
typedef bool (*callback)(struct node *, bool, void *);
struct params { uint32_t n_ctx; callback cb_eval; void *cb_eval_user_data; int32_t n_threads;
                int flash_attn_type; int type_k; int type_v; };
struct batch { int32_t n_tokens; int32_t *token; float *embd; int32_t *pos; int32_t *n_seq_id;
               int32_t **seq_id; int8_t *logits; };
struct context { struct params params; struct node nodes[64]; int count; long sum; };

enum { LAYERS = 2 };

static void add(struct context *c, const char *name, int layer, const char *op, int work) {
    struct node *n = &c->nodes[c->count++];
    if (layer < 0) snprintf(n->name, sizeof n->name, "%s", name);
    else snprintf(n->name, sizeof n->name, name, layer);
    n->op = op;
    n->work = work;
}

void *llama_init_from_model(void *model, struct params params) {
    struct context *c = calloc(1, sizeof *c);
    c->params = params;
    add(c, "inp_embd", -1, "GET_ROWS", 1);
    for (int i = 0; i < LAYERS; i++) {
        add(c, "attn_norm-%d", i, "MUL", 1);
        add(c, "Qcur-%d", i, "MUL_MAT", 40);
        add(c, "Qcur-%d (reshaped)", i, "RESHAPE", 0);
        add(c, "Qcur-%d", i, "ROPE", 2);
        add(c, "cache_k_l%d (view)", i, "SET_ROWS", 1);
        add(c, "kqv_out-%d", i, "CONT", 3);
        add(c, i ? "node_17" : "node_9", -1, "MUL_MAT", 5);
        add(c, "ffn_out-%d", i, "MUL_MAT", 80);
    }
    add(c, "result_norm", -1, "MUL", 1);
    add(c, "result_output", -1, "MUL_MAT", 20);
    return c;
}

int32_t llama_decode(struct context *c, struct batch b) {
    struct params p = c->params;
    if (b.n_tokens > 16) return 1;
    for (int first = 0; first < c->count; first++) {
        int last = first;
        bool need = p.cb_eval && p.cb_eval(&c->nodes[first], true, p.cb_eval_user_data);
        while (p.cb_eval && !need && last < c->count - 1)
            need = p.cb_eval(&c->nodes[++last], true, p.cb_eval_user_data);
        if (!p.cb_eval) last = c->count - 1;
        for (int i = first; i <= last; i++) {
            volatile long work = 0;
            for (long k = 0; k < 2000L * c->nodes[i].work; k++) work += k;
            c->sum += c->nodes[i].work * b.n_tokens;
        }
        if (need && !p.cb_eval(&c->nodes[last], false, p.cb_eval_user_data)) break;
        first = last;
    }
    return 0;
}

int32_t llama_model_desc(void *model, char *text, size_t size) { return snprintf(text, size, "fake 1B Q4_0"); }
bool llama_supports_gpu_offload(void) { return false; }
long fake_sum(struct context *c) { return c->sum; }
const char *ggml_get_name(struct node *n) { return n->name; }
#ifndef WITHOUT_OPERATORS
const char *ggml_op_desc(struct node *n) { return n->op; }
#endif
