/* completion.c: completions for bash, zsh and fish, made from verbs.c and option_table.c. Owns
 * the three shells' syntax. */
#include "cli/options.h"

#include <string.h>

/* "first|middle|last" with blanks instead. */
static void words(struct ds_buf *b, const char *list)
{
    for (const char *p = list; p && *p; p++)
        ds_buf_add(b, *p == '|' ? " " : p, 1);
}

/* What can be completed for a value; model names are not in the table since any path is allowed,
 * too. */
static const char *value_words(const struct ds_option_def *d)
{
    return d->words                          ? d->words
           : strcmp(d->name, "model") == 0   ? "smollm2"
           : strcmp(d->name, "kernels") == 0 ? "vendor|split|pinned|fused|reference"
                                             : NULL;
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void bash_values(struct ds_buf *b, const struct ds_verb_def *v)
{
    for (size_t i = 0; i < ds_option_count; i++) {
        const struct ds_option_def *d = &ds_option_defs[i];
        if (!d->arg || !ds_option_takes(v->id, d))
            continue;
        ds_buf_printf(b, "        %s:--%s", v->name, d->name);
        if (d->letter)
            ds_buf_printf(b, "|%s:-%c", v->name, d->letter);
        ds_buf_puts(b, ") words='");
        words(b, value_words(d));
        ds_buf_printf(b, "' files=%d list=%d;;\n", (d->shape & DS_OPT_FILE) != 0,
                      (d->shape & DS_OPT_LIST) != 0);
    }
}

static void bash(struct ds_buf *b)
{
    ds_buf_puts(b, "# bash completion for driftscope; made by: driftscope help --completion bash\n"
                   "_driftscope()\n{\n"
                   "    local cur prev verb= word words= files=0 list=0 i head=\n"
                   "    local -a line=(\"${COMP_WORDS[@]}\")\n"
                   "    COMPREPLY=()\n"
                   "    cur=${line[COMP_CWORD]}\n"
                   "    prev=${line[COMP_CWORD-1]}\n"
                   "    # bash splits --name=value at the equals sign\n"
                   "    if [[ $prev == = ]]; then prev=${line[COMP_CWORD-2]}; fi\n"
                   "    if [[ $cur == = ]]; then prev=${line[COMP_CWORD-1]}; cur=; fi\n"
                   "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                   "        word=${line[i]}\n"
                   "        case $word in\n        ");
    for (size_t i = 0; i < ds_verb_count; i++)
        ds_buf_printf(b, "%s%s", i ? "|" : "", ds_verbs[i].name);
    ds_buf_puts(b, ") verb=$word; break;;\n        esac\n    done\n    case $verb:$prev in\n");
    for (size_t i = 0; i < ds_verb_count; i++)
        bash_values(b, &ds_verbs[i]);
    ds_buf_puts(b, "        *)\n            case $verb in\n            '') words='");
    for (size_t i = 0; i < ds_verb_count; i++)
        ds_buf_printf(b, "%s ", ds_verbs[i].name);
    ds_buf_puts(b, "';;\n            help) words='");
    for (size_t i = 0; i < ds_verb_count; i++)
        ds_buf_printf(b, "%s ", ds_verbs[i].name);
    ds_buf_puts(b, "';;\n");
    for (size_t i = 0; i < ds_verb_count; i++)
        if (ds_verbs[i].operand_words) {
            ds_buf_printf(b, "            %s) words='", ds_verbs[i].name);
            words(b, ds_verbs[i].operand_words);
            ds_buf_puts(b, "';;\n");
        } else if (!ds_verbs[i].operands[0])
            ds_buf_printf(b, "            %s) ;;\n", ds_verbs[i].name);
    ds_buf_puts(b, "            *) files=1;;\n            esac\n"
                   "            if [[ $cur == -* ]]; then\n                files=0\n               "
                   " case $verb in\n");
    for (size_t i = 0; i <= ds_verb_count; i++) {
        enum ds_verb_id id = i < ds_verb_count ? ds_verbs[i].id : DS_VERB_NONE;
        ds_buf_printf(b, "                %s) words='", i < ds_verb_count ? ds_verbs[i].name : "*");
        for (size_t j = 0; j < ds_option_count; j++)
            if (ds_option_takes(id, &ds_option_defs[j]))
                ds_buf_printf(b, "--%s ", ds_option_defs[j].name);
        ds_buf_puts(b, "';;\n");
    }
    ds_buf_puts(b, "                esac\n            fi;;\n    esac\n"
                   "    if ((list)) && [[ $cur == *,* ]]; then head=${cur%,*},; fi\n"
                   "    while IFS= read -r word; do COMPREPLY+=(\"$word\"); done \\\n"
                   "        < <(compgen -P \"$head\" -W \"$words\" -- \"${cur#\"$head\"}\")\n"
                   "    if ((files)); then\n"
                   "        compopt -o filenames 2>/dev/null\n"
                   "        while IFS= read -r word; do COMPREPLY+=(\"$word\"); done < <(compgen "
                   "-f -- \"$cur\")\n"
                   "    fi\n}\ncomplete -F _driftscope driftscope\n");
}

/* ---- zsh ------------------------------------------------------------------------------------- */

/* A description inside a zsh specification inside single quotes. */
static void zsh_text(struct ds_buf *b, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            ds_buf_puts(b, "'\\''");
        else {
            if (strchr("[]:\\", *p))
                ds_buf_puts(b, "\\");
            ds_buf_add(b, p, 1);
        }
    }
}

static void zsh_option(struct ds_buf *b, const struct ds_option_def *d)
{
    char letter[3] = {'-', d->letter, '\0'};
    for (int form = d->letter ? 0 : 1; form < 2; form++) {
        ds_buf_printf(b, "            '*%s%s%s[", form ? "--" : letter, form ? d->name : "",
                      d->arg ? (form ? "=" : "+") : "");
        zsh_text(b, d->help);
        ds_buf_puts(b, "]");
        if (d->arg) {
            const char *list = value_words(d);
            ds_buf_printf(b, ":%s:", d->arg);
            if (d->shape & DS_OPT_FILE)
                ds_buf_puts(b, "_files");
            else if (list) {
                ds_buf_puts(b, d->shape & DS_OPT_LIST ? "_sequence compadd - " : "(");
                words(b, list);
                ds_buf_puts(b, d->shape & DS_OPT_LIST ? "" : ")");
            }
        }
        ds_buf_puts(b, "' \\\n");
    }
}

static void zsh(struct ds_buf *b)
{
    ds_buf_puts(b, "#compdef driftscope\n# zsh completion for driftscope; made by: driftscope help "
                   "--completion zsh\n"
                   "_driftscope()\n{\n    local -a verbs=(\n");
    for (size_t i = 0; i < ds_verb_count; i++) {
        ds_buf_printf(b, "        '%s:", ds_verbs[i].name);
        zsh_text(b, ds_verbs[i].summary);
        ds_buf_puts(b, "'\n");
    }
    ds_buf_puts(b, "    )\n    local verb= word\n"
                   "    for word in ${words[2,CURRENT-1]}; do\n"
                   "        if [[ $word != -* ]]; then verb=$word; break; fi\n    done\n"
                   "    case $verb in\n");
    for (size_t i = 0; i <= ds_verb_count; i++) {
        const struct ds_verb_def *v = i < ds_verb_count ? &ds_verbs[i] : NULL;
        ds_buf_printf(b, "    %s)\n        _arguments -s \\\n", v ? v->name : "*");
        for (size_t j = 0; j < ds_option_count; j++)
            if (ds_option_takes(v ? v->id : DS_VERB_NONE, &ds_option_defs[j]))
                zsh_option(b, &ds_option_defs[j]);
        if (!v)
            ds_buf_puts(b, "            '1:verb:{_describe verb verbs}';;\n");
        else if (v->operand_words) {
            ds_buf_printf(b, "            '1:verb:' '*:%s:(", v->operands);
            words(b, v->operand_words);
            ds_buf_puts(b, ")';;\n");
        } else
            ds_buf_printf(b, "            '1:verb:' '*:%s';;\n",
                          v->id == DS_VERB_HELP ? "verb:{_describe verb verbs}"
                          : v->operands[0]      ? "file:_files"
                                                : ":");
    }
    ds_buf_puts(b, "    esac\n}\n_driftscope \"$@\"\n");
}

/* ---- fish ------------------------------------------------------------------------------------ */

static void fish_text(struct ds_buf *b, const char *text)
{
    ds_buf_puts(b, "'");
    for (const char *p = text; *p; p++) {
        if (*p == '\'' || *p == '\\')
            ds_buf_puts(b, "\\");
        ds_buf_add(b, p, 1);
    }
    ds_buf_puts(b, "'");
}

static void fish_option(struct ds_buf *b, const struct ds_option_def *d)
{
    ds_buf_puts(b, "complete -c driftscope");
    if (d->verbs != DS_ANY_VERB) {
        ds_buf_puts(b, " -n '__fish_seen_subcommand_from");
        for (size_t j = 0; j < ds_verb_count; j++)
            if (ds_option_takes(ds_verbs[j].id, d))
                ds_buf_printf(b, " %s", ds_verbs[j].name);
        ds_buf_puts(b, "'");
    }
    if (d->letter)
        ds_buf_printf(b, " -s %c", d->letter);
    ds_buf_printf(b, " -l %s", d->name);
    if (d->arg) {
        ds_buf_puts(b, d->shape & DS_OPT_FILE ? " -rF" : " -x");
        if (value_words(d)) {
            ds_buf_puts(b, " -a '");
            words(b, value_words(d));
            ds_buf_puts(b, "'");
        }
    }
    ds_buf_puts(b, " -d ");
    fish_text(b, d->help);
    ds_buf_puts(b, "\n");
}

static void fish(struct ds_buf *b)
{
    ds_buf_puts(b, "# fish completion for driftscope; made by: driftscope help --completion fish\n"
                   "complete -c driftscope -n __fish_use_subcommand -f\n");
    for (size_t i = 0; i < ds_verb_count; i++) {
        ds_buf_printf(b, "complete -c driftscope -n __fish_use_subcommand -a %s -d ",
                      ds_verbs[i].name);
        fish_text(b, ds_verbs[i].summary);
        ds_buf_puts(b, "\n");
        ds_buf_printf(b, "complete -c driftscope -n '__fish_seen_subcommand_from help' -f -a %s\n",
                      ds_verbs[i].name);
        if (ds_verbs[i].operand_words || !ds_verbs[i].operands[0])
            ds_buf_printf(b, "complete -c driftscope -n '__fish_seen_subcommand_from %s' -f\n",
                          ds_verbs[i].name);
        if (ds_verbs[i].operand_words) {
            ds_buf_printf(b, "complete -c driftscope -n '__fish_seen_subcommand_from %s' -a '",
                          ds_verbs[i].name);
            words(b, ds_verbs[i].operand_words);
            ds_buf_puts(b, "'\n");
        }
    }
    for (size_t i = 0; i < ds_option_count; i++)
        for (size_t j = 0; j < ds_verb_count; j++)
            if (ds_option_takes(ds_verbs[j].id, &ds_option_defs[i])) {
                fish_option(b, &ds_option_defs[i]);
                break;
            }
}

int ds_help_completion(struct ds_buf *b, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        bash(b);
    else if (strcmp(shell, "zsh") == 0)
        zsh(b);
    else if (strcmp(shell, "fish") == 0)
        fish(b);
    else
        return -1;
    return 0;
}
