/* require.c: --strict and --require: a run whose kernels do not claim what is demanded does not start. Owns
 * the words for claims; the claims are the kernels' own (`driftscope check` holds them against what they do). */
#include "cli/require.h"

#include "engine/sweep.h"

#include <string.h>

static const struct {
    const char *word;
    uint32_t claim;
} words[] = {{"run", DS_CLAIM_REPEAT},
             {"batch", DS_CLAIM_BATCH},
             {"slot", DS_CLAIM_SLOT},
             {"thread", DS_CLAIM_THREADS},
             {"chunk", DS_CLAIM_CHUNK}};
enum { N_WORDS = sizeof words / sizeof words[0] };

size_t ds_claims_missing(const struct ds_kernel_set *set, const unsigned char *used,
                         uint32_t claims, struct ds_buf *out)
{
    const struct ds_kernel *k, *last = NULL;
    size_t n = 0;
    for (int op = 0; op < DS_OP_COUNT; op++)
        for (int32_t i = 0; (!used || used[op]) && (k = ds_kernel_set_used(set, op, i)); i++) {
            if ((k->claims & claims) == claims || k == last)
                continue;
            ds_buf_printf(out, "%s%s/%s", n++ ? ", " : "", ds_op_name(op), k->name);
            last = k;
        }
    return n;
}

static uint32_t demanded(const char *list)
{
    uint32_t claims = 0;
    for (const char *p = list; *p;) {
        const size_t n = strcspn(p, ",");
        for (int i = 0; i < N_WORDS; i++)
            if (strlen(words[i].word) == n && strncmp(words[i].word, p, n) == 0)
                claims |= words[i].claim;
        p += n + (p[n] == ',');
    }
    return claims;
}

/* What the demanded words are called in a sentence: "run, batch and thread". */
static void add_words(uint32_t claims, struct ds_buf *out)
{
    for (int i = 0; i < N_WORDS; i++) {
        if (!(claims & words[i].claim))
            continue;
        claims &= ~words[i].claim;
        ds_buf_printf(out, "%s%s", words[i].word,
                      (claims & (claims - 1)) ? ", "
                      : claims                ? " and "
                                              : "");
    }
}

/* Ops that the sites of the model name; an order of requests and a process are part of every run. */
static void find_used(const struct ds_header *h, unsigned char *used)
{
    memset(used, 0, DS_OP_COUNT);
    for (size_t i = 0; i < h->n_sites; i++) {
        const int op = ds_op_parse(h->sites[i].op);
        if (op >= 0)
            used[op] = 1;
    }
    used[DS_OP_SCHEDULE] = used[DS_OP_PROCESS] = 1;
}

int ds_cli_require_nothing(const struct ds_options *o, const char *what, struct ds_error *err)
{
    const char *given = ds_opt_given(o, "require") ? "require"
                        : ds_opt_flag(o, "strict") ? "strict"
                                                   : NULL;
    return given ? ds_fail(err, "--%s: nothing is run, since %s is given", given, what) : 0;
}

int ds_cli_require(const struct ds_options *o, const struct ds_header *h, const char *sets,
                   struct ds_error *err)
{
    unsigned char used[DS_OP_COUNT];
    if (!ds_opt_flag(o, "strict") && !ds_opt_given(o, "require"))
        return 0;
    const uint32_t claims = demanded(ds_opt_text(o, "require"));
    find_used(h, used);
    for (size_t arm = 0; arm < h->n_arms; arm++) {
        struct ds_setting s;
        struct ds_buf missing = {0}, wanted = {0};
        if (ds_setting_parse(h->arms[arm].values, &s, err) != 0)
            return -1;
        const size_t n = ds_claims_missing(&s.kernels, used, claims, &missing);
        add_words(claims, &wanted);
        if (n) {
            ds_fail(err, "not started: %s of kernel set '%.80s' %s not claim what is demanded (%s)",
                    missing.data ? missing.data : "a kernel",
                    h->arms[arm].values[DS_FACTOR_KERNELS], n == 1 ? "does" : "do",
                    wanted.data ? wanted.data : "");
            ds_hint(err,
                    "%s pinned claims all of it; in another set a kernel is replaced by "
                    "+OP=pinned; driftscope kernels shows what each claims",
                    sets);
        }
        ds_buf_free(&missing);
        ds_buf_free(&wanted);
        if (n)
            return -1;
    }
    return 0;
}
