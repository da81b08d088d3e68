# test_dist.sh: `make dist`: the folder runs in a root that has nothing but it and glibc.
. tests/cli/lib.sh

# in_root COMMAND...: in $dir/root, which has no /proc: there the loader is told by a variable where the program lies.
in_root() {
    # shellcheck disable=SC2086
    run env -i LD_ORIGIN_PATH=/opt/ds/bin LC_ALL=C.UTF-8 $enter "$dir/root" /opt/ds/bin/driftscope "$@"
}

make_dist() {
    ldd "$driftscope" >"$dir/libraries"
    ! grep -q -e libasan -e libubsan "$dir/libraries" || skip "a program with sanitizers is not for other machines"
    build=$(dirname "${driftscope#"$root"/}")
    run sh -c "$ds_make -o $build/build_info.h -q all"
    [ "$code" -eq 0 ] || skip "sources changed since the build"
    run sh -c "$ds_make -o $build/build_info.h dist"
    expect 0
    dist=$(sed -n 's|^\(.*\)\.tar\.gz: .*|\1|p' "$dir/out" | tail -n 1)
    [ -s "$dist.tar.gz" ]
}

test_what_is_in_it() {
    make_dist
    has "$dist/README" "$("$driftscope" --version)"
    has "$dist/README" "with glibc 2."
    # Nothing but glibc is needed by the program, nothing but glibc and its neighbours by the libraries beside it.
    ldd "$dist/bin/driftscope" | awk '{ print $1 }' | grep -Ev '^(linux-vdso|libc|libm|.*/ld-linux-.*)\.so' >"$dir/more" || true
    empty "$dir/more"
    for file in "$dist"/lib/*.so*; do
        [ -f "$file" ] || continue
        objdump -p "$file" | awk '$1 == "NEEDED" { print $2 }' | grep -Ev '^(libc|libm|libdl|libpthread|ld-linux-.*)\.so' |
            while read -r name; do [ -f "$dist/lib/$name" ] || { say "$file needs $name"; exit 1; }; done
    done
    # No binary needs a later glibc than the README says, and none knows a folder of this machine.
    stated=$(grep -o 'with glibc [^;]*' "$dist/README" | grep -o '2\.[0-9]*' | sort -V | tail -n 1)
    find "$dist/bin" "$dist/lib" -type f | while read -r file; do
        for version in $(objdump -T "$file" | grep -o 'GLIBC_2\.[0-9]*' | cut -d_ -f2 | sort -uV); do
            [ "$(printf '%s\n%s\n' "$version" "$stated" | sort -V | tail -n 1)" = "$stated" ] || { say "$file needs glibc $version"; exit 1; }
        done
        ! objdump -p "$file" | grep -E 'R(UN)?PATH' | grep -v '\$ORIGIN/../lib$' || { say "$file has a path of this machine"; exit 1; }
    done
    # The script beside it finds the program, and says what is left to do when no time is.
    run "$dist/gpu-check" --device sim --minutes 0 --out "$dir/gpu"
    expect 2
    has "$dir/out" "pinned-ops         not run"
    [ -s "$dist/share/doc/driftscope/licences/libhdf5-dev" ]
    [ -s "$dist/share/terminfo/x/xterm" ]
    [ -s "$dist/share/man/man1/driftscope.1" ]
    [ -s "$dist/share/doc/driftscope/docs/SERVING.md" ]
    tar -tzf "$dist.tar.gz" | grep -q '/bin/driftscope$'
}

test_runs_in_an_empty_root() {
    make_dist
    if [ "$(id -u)" -eq 0 ] && chroot / true 2>/dev/null; then
        enter=$(command -v chroot)
    elif unshare -r chroot / true 2>/dev/null; then
        enter="$(command -v unshare) -r $(command -v chroot)"
    else
        skip "no way to change the root here"
    fi
    mkdir -p "$dir/root/opt" "$dir/root/tmp" "$dir/root/dev"
    : >"$dir/root/dev/null" # an empty file stands in for it
    tar -xzf "$dist.tar.gz" -C "$dir/root/opt"
    mv "$dir/root/opt/$(basename "$dist")" "$dir/root/opt/ds"
    for library in $(ldd "$driftscope" | grep -oE '/[^ ]*/(libc|libm|ld-linux-[a-z0-9-]*)\.so\.[0-9]+'); do
        mkdir -p "$dir/root$(dirname "$library")"
        cp -L "$library" "$dir/root$library"
    done
    in_root --version
    expect 0
    same_files "$dir/out" - <<END
$("$driftscope" --version)
END
    [ ! -f "$dist/lib/libopenblas.so.0" ] || {
        in_root run -m random:llama,layers=2,hidden=64 --batch 1,4 --threads 1 -o /vendor.h5
        [ "$code" -le 1 ]
        has "$dir/out" "matmul/openblas"
    }
    in_root run -m random:llama,layers=2,hidden=64 --kernels split --batch 1,4 --threads 2 -o /a.h5
    expect 1
    in_root show /a.h5
    expect 1
    has "$dir/out" "split"
    in_root check matmul/pinned --shape n=64,k=64
    expect 0
    in_root selftest O-01
    expect 0
    echo "save-display /screen" >"$dir/root/script"
    in_root tui --script /script --size 80x24 /a.h5
    expect 0
    has "$dir/root/screen" "drift"
}

run_tests
