# mine_history.sh: for the recipe in README: a folder `mine` with the history of a kernel, examples/plugin/pairwise.c in five commits, of which
# the third changes the order of its sums; then the folder is entered, with two builds: old.so of the first commit, mine.so of the last.
# Sourced; $ROOT is the repository.
git init -q mine && cd mine || return
git config user.name dev
git config user.email dev@example.org
git config advice.detachedHead false
commit() {
    git add -A
    GIT_AUTHOR_DATE="2024-06-0$1T12:00:00Z" GIT_COMMITTER_DATE="2024-06-0$1T12:00:00Z" git commit -qm "$2"
}
sed 's/"pairwise"/"mine"/' "$ROOT/examples/plugin/pairwise.c" >mine.c
cp "$ROOT/kernels/driftscope_kernel.h" .
printf 'mine.so: mine.c\n\t$(CC) -std=c11 -O2 -ffp-contract=off -fPIC -shared -o $@ $<\n' >Makefile
printf '*.so\n*.h5\n*.lock\nerr\n' >.gitignore
commit 1 "A kernel of my own"
make -s mine.so && mv mine.so old.so
sed -i 's/halves added, down to 8 terms in order/sums of halves/' mine.c && commit 2 "Say what it does in fewer words"
sed -i 's/n > 8/n > 16/' mine.c && commit 3 "Longer runs before halving: fewer calls"
sed -i 's|(void)why, (void)why_size;.*|(void)why, (void)why_size;|' mine.c && commit 4 "Drop a comment"
sed -i 's|/\* Every thread takes its share of the columns. \*/|/* Columns are shared out. */|' mine.c && commit 5 "Shorter words"
make -s mine.so
