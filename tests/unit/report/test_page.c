/* test_page.c: pages and figures of records made by hand: whatever a record's texts hold comes out as text, every element is closed, the
 * numbers beside a figure are those that it shows. */
#include "tests/unit/report/made.h"

#include "report/figure.h"
#include "report/html.h"
#include "report/page.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define HOSTILE "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\xff&amp;"

/* ---- elements are closed, in order ----------------------------------------------------------- */

enum { DEPTH = 64, NAME = 32 };

static size_t name_of(const char *p, char out[NAME])
{
    size_t n = 0;
    while (n + 1 < NAME && (isalnum((unsigned char)p[n]) || p[n] == '-'))
        n++;
    memcpy(out, p, n);
    out[n] = '\0';
    return n;
}

/* The end of a tag: its attributes have values in quotes, which hold no '<'. Returns whether it closes itself. */
static const char *end_of_tag(const char *p, int *closed)
{
    *closed = 0;
    while (*p && *p != '>') {
        *closed = *p == '/';
        if (*p == '"') {
            const char *q = strchr(p + 1, '"');
            assert_non_null(q);
            for (const char *c = p + 1; c < q; c++)
                assert_int_not_equal(*c, '<');
            p = q;
        }
        p++;
    }
    assert_int_equal(*p, '>');
    return p + 1;
}

static void assert_well_formed(const char *text)
{
    char open[DEPTH][NAME], name[NAME];
    size_t depth = 0;
    int closed;
    for (const char *p = strchr(text, '<'); p; p = strchr(p, '<')) {
        if (p[1] == '!' || p[1] == '?') {
            p = strchr(p, '>');
            assert_non_null(p);
            continue;
        }
        const int ends = p[1] == '/';
        assert_true(name_of(p + 1 + ends, name) > 0);
        p = end_of_tag(p + 1, &closed);
        if (ends) {
            assert_true(depth > 0);
            assert_string_equal(open[--depth], name);
        } else if (!closed) {
            assert_true(depth < DEPTH);
            memcpy(open[depth++], name, NAME);
        }
    }
    assert_int_equal(depth, 0);
}

static void assert_harmless(const char *text)
{
    assert_null(strstr(text, "<script"));
    assert_null(strstr(text, "<img"));
    assert_null(strchr(text, '\x1b'));
    assert_null(strchr(text, '\xff'));
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void test_text_is_text(void **state)
{
    (void)state;
    struct ds_buf b = {0};
    ds_html_text(&b, HOSTILE, (size_t)-1);
    assert_string_equal(
        b.data,
        "&quot;&#39;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(2)&gt;"
        "\\x1b[2J\\xff&amp;amp;");
    b.len = 0;
    ds_html_text(&b, NULL, (size_t)-1);
    ds_html_text(&b, "abc", 2);
    assert_string_equal(b.data, "ab");
    ds_buf_free(&b);
    struct ds_buf tsv = {0}, out = {0};
    ds_buf_puts(&tsv, "name\tsize\n<b>\t1.5e-07\nx\t\n");
    ds_html_table(&out, "a \"b\"", &tsv);
    assert_well_formed(out.data);
    assert_non_null(strstr(out.data, "aria-label=\"a &quot;b&quot;\""));
    assert_non_null(strstr(out.data, "<td>&lt;b&gt;</td><td class=\"n\">1.5e-07</td>"));
    assert_int_equal(count(out.data, "<td"), 4);
    ds_buf_free(&tsv);
    ds_buf_free(&out);
}

/* ---- a page ---------------------------------------------------------------------------------- */

static void pair(const struct made *m, struct ds_report_view *w)
{
    *w = (struct ds_report_view){.r = &m->r, .a = m->a, .s = &m->src};
    assert_true(ds_report_pair(&m->v, m->a, m->src.header->n_arms, &w->arm, &w->ref));
}

static void print_page(struct made *m, const char *path, struct ds_buf *out)
{
    struct ds_error err;
    struct ds_page p = {0};
    struct ds_report_view w;
    struct ds_figure heat = {0}, growth = {0};
    pair(m, &w);
    ds_page_begin_record(&p, path, m->src.header, "drift: &lt; so", DS_ROLE_DRIFT);
    ds_page_matrix(&p, &m->r);
    ds_page_figure_id(&p, &heat);
    assert_ok(ds_figure_heat(&w, &heat, &err), err);
    ds_page_figure(&p, &heat, 0);
    ds_page_figure_id(&p, &growth);
    ds_figure_growth(&m->r, &growth);
    ds_page_figure(&p, &growth, 0);
    ds_page_verdict(&p, &m->r);
    const struct ds_env_of of = {.report = &m->r, .sides = {m->src.header, NULL}, .verdict = &m->v};
    assert_ok(ds_page_environment(&p, &of, &err), err);
    ds_page_end_record(&p);
    ds_page_print(&p, "title", "made", out);
    assert_false(out->failed);
    assert_string_not_equal(heat.id, growth.id);
    ds_figure_free(&heat);
    ds_figure_free(&growth);
    ds_page_free(&p);
}

static void test_a_page(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    struct ds_buf out = {0};
    make_usual(&s, &m, openblas, 2);
    print_page(&m, "my record.h5", &out);
    assert_well_formed(out.data);
    size_t drifting = 0;
    for (size_t k = 0; k < m.v.n_kernels; k++)
        for (size_t f = 0; f < m.v.n_factors; f++)
            drifting += m.v.kernels[k].condition[f] == DS_COND_DRIFT;
    assert_true(drifting > 0);
    assert_int_equal(count(out.data, "<td class=\"drift\">"), drifting);
    assert_non_null(strstr(out.data, "matmul/"));
    assert_non_null(strstr(out.data, "<dt>first drift</dt>"));
    assert_non_null(
        strstr(out.data, "drift: &amp;lt; so")); /* escaped once, whatever it looks like */
    assert_null(strstr(out.data,
                       "http://www.w3.org/1999")); /* nothing from elsewhere but the name of SVG */
    assert_int_equal(count(out.data, "http"),
                     count(out.data, "<svg xmlns=\"http://www.w3.org/2000/svg\"") + 1);
    assert_non_null(strstr(out.data, "http-equiv=\"Content-Security-Policy\""));
    ds_buf_free(&out);
    done(&m);
    sweep_free(&s);
}

/* Every text that a record has is somebody else's. */
static void test_hostile_texts(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    struct ds_buf out = {0};
    static char text[] = HOSTILE;
    make_usual(&s, &m, openblas, 1);
    struct ds_header *h = (struct ds_header *)m.src.header;
    struct ds_text lines[1] = {{text, text}}, *options = h->options, *environment = h->environment,
                   *hparams = h->hparams;
    const size_t n_options = h->n_options, n_environment = h->n_environment,
                 n_hparams = h->n_hparams;
    char *command = h->command;
    h->options = h->environment = h->hparams = lines;
    h->n_options = h->n_environment = h->n_hparams = 1;
    h->command = text;
    snprintf(h->model_name, sizeof h->model_name, "%s", text);
    snprintf(h->tool_version, sizeof h->tool_version, "%.60s", text);
    snprintf(h->build, sizeof h->build, "%.100s", text);
    snprintf(h->start, sizeof h->start, "%.30s", text);
    for (size_t i = 0; i < h->n_sites; i++) {
        snprintf(h->sites[i].stage, sizeof h->sites[i].stage, "<script>%zu", i % 5);
        snprintf(h->sites[i].part, sizeof h->sites[i].part, "<img>&");
    }
    for (size_t k = 0; k < m.v.n_kernels; k++)
        m.v.kernels[k].variant = m.v.kernels[k].op = text;
    for (size_t f = 0; f < m.v.n_factors; f++)
        m.v.factors[f].name = text;
    for (size_t i = 0; i < m.v.n_growth; i++)
        m.v.growth[i].added_stage = m.v.growth[i].added_part = text;
    m.v.first.variant = m.v.first.stage = m.v.first.factor = m.v.first.value = text;
    print_page(&m, text, &out);
    assert_well_formed(out.data);
    assert_harmless(out.data);
    assert_true(count(out.data, "&lt;script&gt;") > 20);
    h->options = options;
    h->environment = environment;
    h->hparams = hparams;
    h->n_options = n_options;
    h->n_environment = n_environment;
    h->n_hparams = n_hparams;
    h->command = command;
    ds_buf_free(&out);
    done(&m);
    sweep_free(&s);
}

/* ---- figures --------------------------------------------------------------------------------- */

static size_t lines_of(const struct ds_buf *b)
{
    return count(b->data, "\n");
}

static void test_the_heat_map_is_the_grid(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    struct ds_report_view w;
    struct ds_figure f = {0};
    struct ds_error err;
    uint8_t *labels;
    make_usual(&s, &m, openblas, 1);
    pair(&m, &w);
    assert_ok(ds_figure_heat(&w, &f, &err), err);
    assert_ok(ds_analysis_labels(m.a, w.arm, w.ref, &labels, &err), err);
    assert_well_formed(f.svg.data);
    assert_int_equal(lines_of(&f.data), m.src.header->n_sites + 1);
    assert_int_equal(count(f.svg.data, "<g><title>"), m.src.header->n_sites);
    size_t origins = 0;
    for (size_t i = 0; i < m.src.header->n_sites; i++)
        origins += ds_report_mark(&m.r, m.a, i, labels, NULL) == '#';
    assert_true(origins > 0);
    assert_int_equal(count(f.data.data, "\t#\torigin\t"), origins);
    assert_int_equal(count(f.svg.data, "<rect class=\"origin\""), origins + 1); /* and the legend */
    struct ds_buf file = {0};
    ds_figure_file(&f, &file);
    assert_well_formed(file.data);
    assert_non_null(strstr(file.data, "<style>"));
    ds_buf_free(&file);
    free(labels);
    ds_figure_free(&f);
    done(&m);
    sweep_free(&s);
}

static void test_growth(void **state)
{
    (void)state;
    struct ds_growth layers[] = {{.layer = 0,
                                  .rows = 2,
                                  .relative_rms = 1e-7,
                                  .added_rows = 1,
                                  .added_relative_rms = 2e-7,
                                  .added_stage = "down",
                                  .added_part = ""},
                                 {.layer = 1, .rows = 0, .relative_rms = 0},
                                 {.layer = 2, .rows = 2, .relative_rms = 3e-5, .max_ulp = 7}};
    struct ds_verdict v = {.growth = layers, .n_growth = 3};
    const struct ds_report r = {.v = &v};
    struct ds_figure f = {0};
    ds_figure_growth(&r, &f);
    assert_well_formed(f.svg.data);
    assert_int_equal(lines_of(&f.data), 4);
    assert_non_null(strstr(f.data.data, "0\t2\t0\t1e-07\t1\t0\t2e-07\tdown\t\n"));
    assert_int_equal(count(f.svg.data, "<circle class=\"p\""),
                     3); /* what is 0 has no logarithm; and the key */
    assert_non_null(strstr(f.svg.data, ">1e-7<"));
    assert_non_null(strstr(f.svg.data, ">1e-4<"));
    ds_figure_free(&f);
    f = (struct ds_figure){0};
    v.n_growth = 0;
    ds_figure_growth(&r, &f);
    assert_int_equal(f.svg.len, 0);
    assert_non_null(strstr(f.about.data, "No layer"));
    ds_figure_free(&f);
}

/* Five requests of one prompt: 3 and 4 leave request 0 at token 1, 4 leaves 3 at token 3; and a prompt that agrees. */
static void test_the_tree_of_completions(void **state)
{
    (void)state;
    static const int32_t tokens[6][4] = {{1, 2, 3, 4}, {9, 9, 9, 9}, {1, 2, 3, 4},
                                         {9, 9, 9, 9}, {1, 7, 3, 4}, {9, 9, 9, 9}};
    static const int32_t more[4] = {1, 7, 3, 8};
    struct ds_step steps[7 * 4];
    struct ds_trial_data t = {.steps = steps};
    for (int r = 0; r < 7; r++)
        for (int k = 0; k < 4; k++)
            steps[t.n_steps++] =
                (struct ds_step){.request = r, .step = k, .token = r < 6 ? tokens[r][k] : more[k]};
    struct ds_storm_completion completions[] = {{.prompt = 0, .request = 0, .size = 2},
                                                {.prompt = 0, .request = 4, .size = 1},
                                                {.prompt = 0, .request = 6, .size = 1},
                                                {.prompt = 1, .request = 1, .size = 3}};
    const struct ds_storm storm = {
        .completions = completions, .n_completions = 4, .n_prompts = 2, .n_requests = 7};
    struct ds_prompt prompts[] = {{.request = 0, .text = (char *)HOSTILE},
                                  {.request = 1, .text = (char *)""}};
    const struct ds_header h = {.prompts = prompts, .n_prompts = 2};
    const struct ds_figure_storm of = {
        .header = &h, .trial = &t, .storm = &storm, .kernels = HOSTILE};
    struct ds_figure f = {0};
    struct ds_error err;
    assert_ok(ds_figure_tree(&of, &f, &err), err);
    assert_well_formed(f.svg.data);
    assert_harmless(f.svg.data);
    assert_string_equal(f.data.data, "prompt\trequest\trequests\tleaves\tat_token\ttokens\n"
                                     "0\t0\t2\t\t\t1 2 3 4\n"
                                     "0\t4\t1\t0\t1\t1 7 3 4\n"
                                     "0\t6\t1\t4\t3\t1 7 3 8\n"
                                     "1\t1\t3\t\t\t9 9 9 9\n");
    assert_non_null(strstr(f.svg.data, ">token 7 at 1<"));
    assert_non_null(strstr(f.svg.data, ">token 8 at 3<"));
    assert_int_equal(count(f.svg.data, "class=\"edge\""), 3);
    assert_non_null(strstr(f.about.data, "1 of 2 prompts are not drawn"));
    ds_figure_free(&f);
}

static void say_token(void *ctx, int32_t id, struct ds_buf *out)
{
    (void)ctx;
    ds_buf_escape(out, id == 7 ? HOSTILE : "t", (size_t)-1);
    ds_buf_printf(out, "%d", id);
}

/* Tokens that are told: beside their ids, and as text, whatever it is. */
static void test_the_tree_tells_tokens(void **state)
{
    (void)state;
    struct ds_step steps[4];
    struct ds_trial_data t = {.steps = steps, .n_steps = 4};
    for (int i = 0; i < 4; i++)
        steps[i] = (struct ds_step){.request = i / 2, .step = i % 2, .token = i == 3 ? 7 : i % 2};
    struct ds_storm_completion completions[] = {{.prompt = 0, .request = 0, .size = 1},
                                                {.prompt = 0, .request = 1, .size = 1}};
    const struct ds_storm storm = {
        .completions = completions, .n_completions = 2, .n_prompts = 1, .n_requests = 2};
    struct ds_prompt prompts[] = {{.request = 0, .text = (char *)"p"}};
    const struct ds_header h = {.prompts = prompts, .n_prompts = 1};
    const struct ds_figure_storm of = {
        .header = &h, .trial = &t, .storm = &storm, .kernels = "k", .token = say_token};
    struct ds_figure f = {0};
    struct ds_error err;
    assert_ok(ds_figure_tree(&of, &f, &err), err);
    assert_well_formed(f.svg.data);
    assert_harmless(f.svg.data);
    assert_non_null(strstr(f.svg.data, "7&#39; (7) at 1<"));
    assert_non_null(strstr(f.data.data, "\tat_token\ttokens\ttext\n0\t0\t1\t\t\t0 1\tt0t1\n"));
    ds_figure_free(&f);
}

/* Two settings, four records: tokens change in the third, logits alone in the second; one record has one setting only. */
static void test_answers_over_time(void **state)
{
    (void)state;
    static const struct ds_time_record records[] = {{"2026-01-01T00:00:00Z", "1 a", "a.h5", NULL},
                                                    {"2026-01-02T00:00:00Z", "1 a", "b.h5", NULL},
                                                    {"2026-01-03T00:00:00Z", "2 a", "c.h5", "version 2"},
                                                    {"2026-01-04T00:00:00Z", "2 a", "d.h5", NULL}};
    static const char *const series[] = {"prompt 1, batch 1", "prompt 1, batch 4",
                                         "prompt 2, batch 1"};
    static const size_t family[] = {0, 1, 2}, joined[] = {0, 0, 2};
    static const char *const concurrency[] = {"1", "4", ""};
    static const struct ds_time_point points[] = {
        {.record = 0, .series = 0, .completion = 5, .logits = 50, .divergence = 0},
        {.record = 0, .series = 1, .completion = 5, .logits = 50, .divergence = 0},
        {.record = 1, .series = 0, .completion = 5, .logits = 51, .divergence = 1e-6},
        {.record = 2, .series = 0, .completion = 6, .logits = 52, .divergence = 0.25},
        {.record = 3, .series = 0, .completion = 5, .logits = 50, .divergence = 0},
        {.record = 3, .series = 1, .completion = 5, .logits = 50, .divergence = (double)NAN},
        {.record = 3, .series = 2, .completion = 9, .logits = 90, .divergence = 0},
    };
    const struct ds_time t = {.records = records,
                              .n_records = 4,
                              .series = series,
                              .names = series,
                              .family = family,
                              .concurrency = concurrency,
                              .n_series = 3,
                              .points = points,
                              .n_points = 7};
    struct ds_figure f = {0};
    struct ds_error err;
    assert_ok(ds_figure_time(&t, &f, &err), err);
    assert_well_formed(f.svg.data);
    assert_int_equal(lines_of(&f.data), 8);
    assert_non_null(strstr(f.data.data, "b.h5\tprompt 1, batch 1\ta2\t"));
    assert_non_null(strstr(f.data.data, "c.h5\tprompt 1, batch 1\tb3\t"));
    assert_non_null(strstr(f.data.data, "d.h5\tprompt 1, batch 1\ta1\t"));
    assert_non_null(strstr(f.data.data, "d.h5\tprompt 1, batch 4\ta1\t"));
    assert_non_null(strstr(f.about.data, "Tokens changed 2 times, logits alone 1 time."));
    assert_int_equal(count(f.svg.data, "class=\"l d\""), 1); /* one change of the version */
    assert_int_equal(count(f.svg.data, ": other tokens than before"), 2);
    assert_int_equal(count(f.svg.data, "prompt 2"), 0); /* what one record has alone is no time */
    assert_int_equal(count(f.svg.data, ">2026-01-04 00:00<"), 1);
    ds_figure_free(&f);
    /* Two of one minute: seconds tell them apart. */
    static const struct ds_time_record near[] = {{"2026-01-01T00:00:00Z", "1 a", "a.h5", NULL},
                                                 {"2026-01-02T00:00:07Z", "1 a", "b.h5", NULL},
                                                 {"2026-01-02T00:00:09Z", "2 a", "c.h5", "version 2 a, 1 a before"},
                                                 {"2026-01-04T00:00:00Z", "2 a", "d.h5", NULL}};
    struct ds_time quick = t;
    quick.records = near;
    assert_ok(ds_figure_time(&quick, &f, &err), err);
    assert_int_equal(count(f.svg.data, ">2026-01-02 00:00:07<"), 1);
    assert_int_equal(count(f.svg.data, ">2026-01-02 00:00:09<"), 1);
    ds_figure_free(&f);
    /* One prompt, asked at another concurrency every day: its letters are told across, and where they change. */
    static const struct ds_time_point load[] = {
        {.record = 0, .series = 0, .completion = 5, .logits = 50, .divergence = 0},
        {.record = 1, .series = 1, .completion = 5, .logits = 51, .divergence = 1e-6},
        {.record = 2, .series = 2, .completion = 9, .logits = 90, .divergence = 0},
    };
    struct ds_time across = t;
    across.points = load;
    across.n_points = 3;
    across.family = joined;
    assert_ok(ds_figure_time(&across, &f, &err), err);
    assert_well_formed(f.svg.data);
    assert_non_null(strstr(f.data.data, "a.h5\tprompt 1, batch 1\ta1\t"));
    assert_non_null(strstr(f.data.data, "b.h5\tprompt 1, batch 4\ta2\t"));
    assert_non_null(strstr(f.data.data, "\t1e-06\t4\n"));
    assert_int_equal(count(f.svg.data, ": tokens as before at another concurrency"), 1);
    assert_int_equal(count(f.svg.data, "prompt 2"), 0);
    assert_non_null(strstr(f.about.data, "others than before at another one 0 times."));
    ds_figure_free(&f);
    const struct ds_time_point other = {
        .record = 1, .series = 1, .completion = 6, .logits = 51, .divergence = 1e-6};
    const struct ds_time_point parted[] = {load[0], other};
    across.points = parted;
    across.n_points = 2;
    assert_ok(ds_figure_time(&across, &f, &err), err);
    assert_non_null(strstr(f.data.data, "b.h5\tprompt 1, batch 4\tb2\t"));
    assert_int_equal(count(f.svg.data, ": other tokens than before at another concurrency"), 1);
    assert_non_null(strstr(f.about.data, "others than before at another one 1 time."));
    assert_non_null(strstr(f.about.data, "Tokens changed 0 times"));
    ds_figure_free(&f);
}

/* A drawing that is longer than a sheet is several, cut where it may be; each thing in it stands there once. */
static void test_a_long_drawing_is_cut_where_it_may_be(void **state)
{
    struct ds_figure f = {.name = "tree"};
    struct ds_buf out = {0};
    struct ds_error err;
    char text[16];
    (void)state;
    ds_svg_begin(&f, 100, 300);
    for (int y = 0; y < 300; y += 60) {
        assert_ok(ds_svg_cut(&f, y, &err), err);
        snprintf(text, sizeof text, "at%d", y);
        ds_svg_text(&f, 0, y + 10, "start", "", text);
    }
    ds_svg_end(&f);
    ds_svg_sheets(&f, &out); /* of 125 at most: two stretches of 60 */
    ds_buf_puts(&out, "");
    assert_int_equal(count(out.data, "<svg "), 3);
    assert_int_equal(count(out.data, "</svg>"), 3);
    assert_non_null(strstr(out.data, "viewBox=\"0 0 100 120\""));
    assert_non_null(strstr(out.data, "viewBox=\"0 120 100 120\""));
    assert_non_null(strstr(out.data, "viewBox=\"0 240 100 60\""));
    for (int y = 0; y < 300; y += 60) {
        snprintf(text, sizeof text, ">at%d<", y);
        assert_int_equal(count(out.data, text), 1);
    }
    assert_int_equal(count(out.data, "id=\"figure-t2\""), 1);
    ds_buf_free(&out);
    ds_figure_free(&f);
    /* one that fits is one */
    f = (struct ds_figure){.name = "tree"};
    ds_svg_begin(&f, 100, 100);
    for (int y = 0; y < 100; y += 20)
        assert_ok(ds_svg_cut(&f, y, &err), err);
    ds_svg_end(&f);
    ds_svg_sheets(&f, &out);
    assert_int_equal(out.len, f.svg.len);
    assert_memory_equal(out.data, f.svg.data, out.len);
    ds_buf_free(&out);
    ds_figure_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_text),
        cmocka_unit_test(test_a_page),
        cmocka_unit_test(test_hostile_texts),
        cmocka_unit_test(test_the_heat_map_is_the_grid),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_the_tree_of_completions),
        cmocka_unit_test(test_the_tree_tells_tokens),
        cmocka_unit_test(test_answers_over_time),
        cmocka_unit_test(test_a_long_drawing_is_cut_where_it_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
