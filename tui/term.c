/* term.c: see term.h. The only file that knows curses. */
#include "tui/term.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/program.h"
#include "tui/term_guard.h"

#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

static struct {
    SCREEN *screen;
    FILE *in, *out;
    int script, colour;
    struct tui_cell *shown; /* [lines][columns] as painted last; NULL: not known */
    int lines, columns;     /* of `shown` */
} term;

/* Colours are the terminal's own eight on its own background; blue is left out, since it cannot be read on
 * black. Without colour the attributes alone tell roles apart that look alike otherwise. */
static const struct {
    int colour, attr, plain_attr;
} looks[TUI_ROLES] = {
    [TUI_PLAIN] = {-1, A_NORMAL, A_NORMAL},
    [TUI_SAME] = {COLOR_GREEN, A_NORMAL, A_NORMAL},
    [TUI_HEALED] = {COLOR_CYAN, A_NORMAL, A_NORMAL},
    [TUI_ORIGIN] = {COLOR_RED, A_BOLD, A_BOLD},
    [TUI_INHERITED] = {COLOR_YELLOW, A_NORMAL, A_NORMAL},
    [TUI_JUMP] = {COLOR_MAGENTA, A_UNDERLINE, A_UNDERLINE},
    [TUI_UNSTABLE] = {COLOR_MAGENTA, A_BOLD, A_BOLD},
    [TUI_NONFINITE] = {COLOR_RED, A_BOLD | A_UNDERLINE, A_BOLD | A_UNDERLINE},
    [TUI_UNKNOWN] = {COLOR_CYAN, A_BOLD, A_NORMAL},
    [TUI_MISSING] = {-1, A_DIM, A_DIM},
    [TUI_DIFFERS] = {COLOR_RED, A_NORMAL, A_UNDERLINE},
    [TUI_DIM] = {-1, A_DIM, A_DIM},
    [TUI_HEAD] = {-1, A_BOLD, A_BOLD},
    [TUI_TITLE] = {-1, A_REVERSE, A_REVERSE},
    [TUI_KEY] = {COLOR_CYAN, A_BOLD, A_BOLD},
    [TUI_MATCH] = {COLOR_YELLOW, A_REVERSE, A_BOLD | A_UNDERLINE},
    [TUI_MARK] = {COLOR_YELLOW, A_BOLD, A_BOLD},
    [TUI_ERROR] = {COLOR_RED, A_BOLD, A_BOLD},
};

/* ---- opening and closing --------------------------------------------------------------------- */

/* Appends a capability without its padding ("$<5>"). */
static size_t add_capability(char *out, size_t n, size_t size, const char *name)
{
    const char *text = tigetstr((char *)(uintptr_t)name);
    if (!text || text == (char *)-1)
        return n;
    while (*text) {
        if (text[0] == '$' && text[1] == '<' && strchr(text, '>')) {
            text = strchr(text, '>') + 1;
            continue;
        }
        if (n < size)
            out[n++] = *text;
        text++;
    }
    return n;
}

static int open_streams(int script, struct ds_error *err)
{
    const char *in = script ? "/dev/null" : "/dev/tty";
    int from_stdin = !script && isatty(STDIN_FILENO);
    /* Streams of their own: closing them must not close the process's. */
    int fd[2] = {from_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                            : open(in, O_RDONLY | O_CLOEXEC),
                 script ? open("/dev/null", O_WRONLY | O_CLOEXEC)
                        : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)};
    int saved = errno;
    term.in = fd[0] < 0 ? NULL : fdopen(fd[0], "r");
    term.out = fd[1] < 0 ? NULL : fdopen(fd[1], "w");
    if (term.in && term.out)
        return 0;
    return ds_fail(err, "cannot open %s: %s", fd[0] < 0 ? in : "the terminal", strerror(saved));
}

void tui_term_find_descriptions(void)
{
    char folder[PATH_MAX], places[PATH_MAX + 256];
    const char *set = getenv("TERMINFO_DIRS");
    struct ds_error none;
    if (ds_program_beside("../share/terminfo", folder, sizeof folder, &none) != 0)
        return;
    /* An empty place stands for those that curses was built with. */
    int n = snprintf(places, sizeof places, "%s:%s", set ? set : "", folder);
    if (n > 0 && (size_t)n < sizeof places)
        setenv("TERMINFO_DIRS", places, 1);
}

static int open_screen(const struct tui_term_options *o, struct ds_error *err)
{
    static const char *const known[] = {"xterm-256color", "xterm", "screen", "vt100", "ansi", NULL};
    const char *type = getenv("TERM");
    use_env(FALSE); /* LINES and COLUMNS are often those of another window */
    use_tioctl(
        TRUE); /* without it a description that has no size, as that of linux, opens no screen */
    if (o->script) {
        for (int i = 0; known[i] && !term.screen; i++)
            term.screen = newterm((char *)(uintptr_t)known[i], term.out, term.in);
        if (!term.screen)
            return ds_fail(err, "no description of xterm or vt100 in this system's terminfo");
        return 0;
    }
    if (type && type[0] && strcmp(type, "dumb") != 0)
        term.screen = newterm((char *)(uintptr_t)type, term.out, term.in);
    if (term.screen && tigetstr((char *)(uintptr_t) "cup") != NULL)
        return 0;
    if (!type || !type[0])
        ds_fail(err, "TERM is not set: what kind of terminal is this?");
    else
        ds_fail(err, "TERM=%.60s: %s", type,
                term.screen || strcmp(type, "dumb") == 0
                    ? "such a terminal cannot move its cursor"
                    : "this system does not know such a terminal");
    return ds_hint(err, "try TERM=xterm, or driftscope show for text");
}

static void take_size(void)
{
    struct winsize size;
    if (term.script || ioctl(fileno(term.out), TIOCGWINSZ, &size) != 0 || size.ws_row < 1 ||
        size.ws_col < 1)
        return;
    int lines = size.ws_row > 1000 ? 1000 : size.ws_row,
        columns = size.ws_col > 1000 ? 1000 : size.ws_col;
    if (lines != LINES || columns != COLS)
        resizeterm(lines, columns);
}

static void set_up(int colour)
{
    raw();
    noecho();
    nonl();
    nodelay(stdscr, TRUE);
    keypad(stdscr, TRUE);
    meta(stdscr, TRUE);
    set_escdelay(25);
    curs_set(0);
    term.colour = colour && has_colors() && start_color() == OK;
    if (!term.colour)
        return;
    int own = use_default_colors() == OK;
    for (int c = 0; c < 8; c++)
        init_pair((short)(c + 1), (short)c, own ? -1 : COLOR_BLACK);
}

int tui_term_open(const struct tui_term_options *o, struct ds_error *err)
{
    char restore[256];
    memset(&term, 0, sizeof term);
    term.script = o->script;
    if (open_streams(o->script, err) != 0) {
        tui_term_close();
        return -1;
    }
    /* Before curses changes the terminal; it says how to bring the screen back only after. */
    if (!o->script && tui_guard_open(fileno(term.out), err) != 0) {
        tui_term_close();
        return -1;
    }
    if (open_screen(o, err) != 0) {
        tui_term_close();
        return -1;
    }
    if (!o->script) {
        size_t n = add_capability(restore, 0, sizeof restore, "sgr0");
        n = add_capability(restore, n, sizeof restore, "cnorm");
        n = add_capability(restore, n, sizeof restore, "rmkx");
        n = add_capability(restore, n, sizeof restore, "rmcup");
        tui_guard_restore(restore, n);
        tui_guard_handlers();
    }
    set_up(o->colour);
    if (o->script)
        resizeterm(o->lines, o->columns);
    take_size();
    return 0;
}

/* A terminal with one screen only keeps what is on it: the shell goes on in its last line, which is empty then. */
static void leave_screen(void)
{
    const char *back = tigetstr((char *)(uintptr_t) "rmcup");
    if (!term.script && (!back || back == (char *)-1)) {
        attrset(A_NORMAL);
        move(LINES - 1, 0);
        clrtoeol();
        refresh();
    }
    endwin();
}

void tui_term_close(void)
{
    if (term.screen) {
        if (!isendwin())
            leave_screen();
        delscreen(term.screen);
    }
    if (term.out) {
        fflush(term.out);
        fclose(term.out);
    }
    if (term.in)
        fclose(term.in);
    free(term.shown);
    int script = term.script;
    memset(&term, 0, sizeof term);
    if (!script)
        tui_guard_close();
}

/* ---- painting -------------------------------------------------------------------------------- */

void tui_term_size(int *lines, int *columns)
{
    *lines = LINES;
    *columns = COLS;
}

void tui_term_resize(int lines, int columns)
{
    resizeterm(lines, columns);
}

void tui_term_redraw(void)
{
    free(term.shown);
    term.shown = NULL;
    clearok(curscr, TRUE);
}

static void paint_cell(int y, int x, const struct tui_cell *cell, int width)
{
    int role = cell->role < TUI_ROLES ? cell->role : TUI_PLAIN;
    attr_t attr = (attr_t)(term.colour ? looks[role].attr : looks[role].plain_attr);
    short pair = (short)(term.colour ? looks[role].colour + 1 : 0);
    wchar_t text[2] = {(wchar_t)cell->ch, 0};
    cchar_t cc;
    if (cell->attr & TUI_BOLD)
        attr |= A_BOLD;
    if (cell->attr & TUI_CURSOR)
        attr ^= A_REVERSE;
    /* The locale's idea of the character, by which curses counts columns. */
    if (cell->ch > 0x7e && wcwidth(text[0]) != width)
        text[0] = L'?';
    if (setcchar(&cc, text, attr, pair, NULL) == OK)
        mvadd_wch(y, x, &cc);
    if (width == 2 && text[0] == L'?')
        mvaddch(y, x + 1, ' ');
}

void tui_term_paint(const struct tui_canvas *c, int y, int x)
{
    if (term.shown && (term.lines != c->h || term.columns != c->w)) {
        free(term.shown);
        term.shown = NULL;
    }
    int all = !term.shown;
    if (all) {
        erase();
        term.shown = ds_calloc((size_t)c->h * (size_t)c->w, sizeof *term.shown, "screen", NULL);
        term.lines = c->h;
        term.columns = c->w;
    }
    for (int line = 0; line < c->h; line++)
        for (int column = 0; column < c->w; column++) {
            size_t i = (size_t)line * (size_t)c->w + (size_t)column;
            const struct tui_cell *cell = c->cells + i;
            int wide = column + 1 < c->w && cell[1].ch == 0;
            if (cell->ch != 0 && (all || memcmp(cell, term.shown + i, sizeof *cell) != 0))
                paint_cell(line, column, cell, wide ? 2 : 1);
        }
    if (term.shown)
        memcpy(term.shown, c->cells, (size_t)c->h * (size_t)c->w * sizeof *c->cells);
    curs_set(y >= 0);
    move(y >= 0 ? y : c->h - 1, y >= 0 ? x : 0);
    refresh();
}

static void read_cell(int y, int x, attr_t *attr, short *pair, char text[8])
{
    cchar_t cc;
    wchar_t wide[CCHARW_MAX + 1] = {0};
    *attr = A_NORMAL;
    *pair = 0;
    if (mvin_wch(y, x, &cc) != OK || getcchar(&cc, wide, attr, pair, NULL) != OK || !wide[0])
        wide[0] = L' ';
    tui_encode((uint32_t)wide[0], text);
}

/* One grid's character of a cell: its text, its colour or its attributes. Returns the cells that it takes. */
static int grid_cell(int grid, int y, int x, char text[8])
{
    attr_t attr;
    short pair;
    read_cell(y, x, &attr, &pair, text);
    int width = text[0] & 0x80 ? wcwidth((wchar_t)tui_decode(text)) : 1;
    if (grid == 0)
        return width == 2 ? 2 : 1;
    int bits = (attr & A_BOLD ? 1 : 0) + (attr & A_DIM ? 2 : 0) + (attr & A_REVERSE ? 4 : 0) +
               (attr & A_UNDERLINE ? 8 : 0);
    text[0] = grid == 1 ? ".krgybmcw"[pair >= 0 && pair < 9 ? pair : 0] : ".123456789abcdef"[bits];
    text[1] = '\0';
    return 1;
}

void tui_term_screen(int attributes, struct ds_buf *out)
{
    for (int grid = 0; grid < (attributes ? 3 : 1); grid++) {
        const char *blank = grid ? "." : " ";
        if (grid)
            ds_buf_puts(out, grid == 1 ? "-- colours\n" : "-- attributes\n");
        for (int y = 0; y < LINES; y++) {
            size_t end = out->len;
            for (int x = 0; x < COLS;) {
                char text[8];
                x += grid_cell(grid, y, x, text);
                ds_buf_puts(out, text);
                end = strcmp(text, blank) != 0 ? out->len : end;
            }
            if (!out->failed)
                out->len = end;
            ds_buf_puts(out, "\n");
        }
    }
}

/* ---- keys and signals ------------------------------------------------------------------------ */

static const char *special(wint_t key)
{
    static const struct {
        wint_t key;
        const char *name;
    } names[] = {
        {KEY_DOWN, "Down"},
        {KEY_UP, "Up"},
        {KEY_LEFT, "Left"},
        {KEY_RIGHT, "Right"},
        {KEY_NPAGE, "PgDn"},
        {KEY_PPAGE, "PgUp"},
        {KEY_HOME, "Home"},
        {KEY_END, "End"},
        {KEY_ENTER, "Enter"},
        {KEY_BTAB, "S-Tab"},
        {KEY_BACKSPACE, "Backspace"},
        {KEY_DC, "Del"},
        {KEY_IC, "Ins"},
        {KEY_F(1), "F1"},
        {KEY_B2, "Center"},
        {KEY_A1, "Home"},
        {KEY_A3, "PgUp"},
        {KEY_C1, "End"},
        {KEY_C3, "PgDn"},
        {KEY_FIND, "Home"},
        {KEY_SELECT, "End"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].key == key)
            return names[i].name;
    return "Unknown";
}

static void plain_key(wint_t key, char name[TUI_KEY_NAME])
{
    const char *known = key == '\r' || key == '\n' ? "Enter"
                        : key == '\t'              ? "Tab"
                        : key == 27                ? "Esc"
                        : key == ' '               ? "Space"
                        : key == 127 || key == 8   ? "Backspace"
                                                   : NULL;
    if (known)
        snprintf(name, TUI_KEY_NAME, "%s", known);
    else if (key < 0x20)
        snprintf(name, TUI_KEY_NAME, "^%c", (int)key + '@');
    else
        tui_encode((uint32_t)key, name);
}

int tui_term_key(char name[TUI_KEY_NAME])
{
    wint_t key;
    int waiting = 0;
    for (;;) {
        int rc = get_wch(&key);
        if (rc == KEY_CODE_YES && key == KEY_RESIZE)
            continue;
        if (rc == KEY_CODE_YES)
            snprintf(name, TUI_KEY_NAME, "%s", special(key));
        else if (rc == OK)
            plain_key(key, name);
        if (rc != ERR)
            return 1;
        /* Bytes are there, yet none of them makes a key: an ill-formed character. */
        if (ioctl(fileno(term.in), FIONREAD, &waiting) != 0)
            return -1;
        return 0;
    }
}

int tui_term_fd(void)
{
    return term.script || !term.in ? -1 : fileno(term.in);
}

int tui_term_signal_fd(void)
{
    return term.script ? -1 : tui_guard_fd();
}

int tui_term_signals(void)
{
    int what = tui_guard_take();
    if (what & TUI_SIGNAL_RESUMED) {
        reset_prog_mode();
        tui_term_redraw();
    }
    if (what & (TUI_SIGNAL_SIZE | TUI_SIGNAL_RESUMED))
        take_size();
    return what;
}

void tui_term_suspend(void)
{
    if (term.script)
        return;
    leave_screen();
    tui_guard_stop();
    refresh(); /* takes the terminal again */
    take_size();
    tui_term_redraw();
}
