#!/bin/sh
# Builds the release binary: static, with profile `dist`.
#
#   packaging/static.sh          for musl: runs on any Linux of this architecture
#   packaging/static.sh gnu      for glibc, linked statically: the same, with glibc's allocator and resolver
#
# Needs a C compiler; for musl also rustup and the package musl-tools (musl-gcc). Prints the binary's path.
#
# The revision of the program (`cardea status`, the metric cardea_build_info) is $CARDEA_REVISION; if that is not set,
# it is the checked-out commit.
set -eu
cd "$(dirname "$0")/.."

# An archive of the sources may be inside another repository.
if [ -z "${CARDEA_REVISION+set}" ] && [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
    CARDEA_REVISION=$(git describe --always --dirty --abbrev=12 --exclude='*')
fi
export CARDEA_REVISION="${CARDEA_REVISION:-}"

architecture=$(uname -m)
case "${1:-musl}" in
musl)
    target=$architecture-unknown-linux-musl
    command -v musl-gcc >/dev/null || {
        echo "static.sh: musl-gcc is missing; install the package musl-tools, or run: packaging/static.sh gnu" >&2
        exit 1
    }
    rustup target list --installed | grep -qx "$target" || rustup target add "$target"
    # For the C libraries among the dependencies. Not as the linker too: Rust brings what it links against for musl,
    # and musl-gcc would make a position-independent binary ask for a loader that isn't there.
    export "CC_$(printf '%s' "$target" | tr - _)=musl-gcc"
    ;;
gnu)
    # With --target, the flag applies to the binary and not to build scripts and macros, which are loaded as
    # shared objects. Since glibc 2.34 the resolver's "files" and "dns" are part of libc, so that a static binary
    # resolves names; other sources of nsswitch.conf are not there.
    target=$architecture-unknown-linux-gnu
    export RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static"
    ;;
*)
    echo "usage: packaging/static.sh [musl|gnu]" >&2
    exit 2
    ;;
esac

cargo build --locked --profile dist --target "$target" --package cardea >&2

binary=${CARGO_TARGET_DIR:-target}/$target/dist/cardea
if readelf --program-headers "$binary" | grep -q INTERP || readelf --dynamic "$binary" | grep -q NEEDED; then
    echo "static.sh: $binary is not static" >&2
    exit 1
fi
"$binary" --version >&2
echo "$binary"
