/* fuzz_requests.c: files of --requests-from as hostile text. What must hold: no crash; an error that names the file, and the line
 * where one is to blame; or prompts, each of which is one that the model can be given.
 *
 * First byte of the input: whether a line's text is put into the chat form; the rest is the file. */
#include "tests/fuzz/fuzz.h"

#include "cli/options.h"
#include "cli/run_plan_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The file as a path, so that it is read as a user's. */
static int file_of(const uint8_t *data, size_t size, char *path, size_t room)
{
    const int fd = memfd_create("requests", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    for (size_t done = 0; done < size;) {
        const ssize_t n = write(fd, data + done, size - done);
        require(n > 0);
        done += (size_t)n;
    }
    snprintf(path, room, "/proc/self/fd/%d", fd);
    return fd;
}

static void are_prompts(const struct ds_run_plan *p)
{
    require(p->header.n_prompts > 0);
    for (size_t i = 0; i < p->header.n_prompts; i++) {
        const struct ds_prompt *q = &p->header.prompts[i];
        require(q->request == (int32_t)i && q->text && q->n_tokens > 0);
        require(q->n_tokens <= (uint32_t)p->model->hp.context);
        for (uint32_t t = 0; t < q->n_tokens; t++)
            require(q->tokens[t] >= 0 && q->tokens[t] < p->model->hp.vocab);
    }
}

static void free_prompts(struct ds_run_plan *p)
{
    for (size_t i = 0; i < p->header.n_prompts; i++) {
        free(p->header.prompts[i].tokens);
        free(p->header.prompts[i].text);
    }
    free(p->header.prompts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ds_model *model;
    static struct ds_tokenizer *tokenizer;
    static const char file[] = "tests/data/tokenizer/tiny_smollm.gguf";
    char program[] = "driftscope", verb[] = "storm", quiet[] = "-q", chat[] = "--chat", path[64];
    char *argv[] = {program, verb, quiet, chat};
    struct ds_options o;
    struct ds_error err = {{0}, {0}};
    if (!model) {
        require(
            ds_model_open("random:llama,layers=1,hidden=32,heads=2,kv_heads=1,ffn=32,vocab=4096", 1,
                          &model, &err) == 0);
        struct ds_gguf *g;
        require(ds_gguf_open(file, &g, &err) == 0);
        require(ds_tokenizer_new(g, &tokenizer, &err) == 0);
        ds_gguf_close(g);
    }
    if (size < 1)
        return 0;
    struct ds_run_plan p = {.model = model, .tokenizer = data[0] & 2 ? tokenizer : NULL};
    const int fd = file_of(data + 1, size - 1, path, sizeof path);
    if (fd < 0)
        return 0;
    require(ds_options_parse(data[0] & 1 ? 4 : 3, argv, &o, &err) == 0);
    if (ds_run_requests(&o, &p, path, &err) == 0)
        are_prompts(&p);
    else
        require(strstr(err.msg, path) && memchr(err.msg, '\0', sizeof err.msg));
    close(fd);
    free_prompts(&p);
    ds_options_free(&o);
    return 0;
}
