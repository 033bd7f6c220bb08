#!/bin/sh
# Builds kp (Kompute's Python package, PyPI has only its source) into a virtual environment:
#     tools/build_kompute.sh VENV
# Its CMake would fetch Vulkan's headers, fmt and pybind11 from GitHub; here it uses the system's, so that it also
# builds where GitHub cannot be reached. VENV needs Python 3.11 or 3.12, and keeps NumPy 1.26: kp asks for numpy<2.
# kp's eval_async() waits as eval() does, and its waits keep Python's lock; two edits of its bindings mend that.
# Debian and Ubuntu: run as root, it installs what it needs. Takes about a minute.
set -eu
version=0.9.0
sha256=98e583dc6e9731ff6d7a3e3317817e4d93f7b2945929619e29a56325db279949  # of its source
fail() { echo "error: $*" >&2; exit 1; }

[ $# = 1 ] && [ -x "$1/bin/python" ] || fail "usage: $0 VENV, an existing virtual environment"
venv=$(cd "$1" && pwd)
python="$venv/bin/python"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' ||
    fail "kp $version is for Python 3.11 or 3.12 here, and $venv has $("$python" --version)"

if ! { command -v g++ && [ -e /usr/include/vulkan/vulkan.h ] && [ -e /usr/include/fmt/core.h ]; } >/dev/null; then
    packages="libvulkan-dev libfmt-dev g++"
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || fail "install $packages first"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages >/dev/null
fi

pip() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }
pip --require-hashes --requirement "$(dirname "$0")/../.ci/locks/kp.txt"

# kp's setup.py runs two arguments of CMake together and so loses the interpreter; a toolchain file names it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
toolchain="$work/toolchain.cmake"
echo "set(PYTHON_EXECUTABLE \"$python\" CACHE FILEPATH \"\" FORCE)" >"$toolchain"

export CMAKE_TOOLCHAIN_FILE="$toolchain" PATH="$venv/bin:/usr/bin:/bin"
pybind11_DIR=$("$python" -m pybind11 --cmakedir)
export pybind11_DIR
# Without the last of them, kp turns validation on wherever the layer is installed.
export KOMPUTE_OPT_INSTALL=OFF KOMPUTE_OPT_USE_BUILT_IN_VULKAN_HEADER=OFF KOMPUTE_OPT_USE_BUILT_IN_FMT=OFF \
    KOMPUTE_OPT_USE_BUILT_IN_PYBIND11=OFF KOMPUTE_OPT_DISABLE_VULKAN_VERSION_CHECK=ON \
    KOMPUTE_OPT_DISABLE_VK_DEBUG_LAYERS=ON
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-binary :all: \
    --dest "$work" "kp==$version"
echo "$sha256  $work/kp-$version.tar.gz" | sha256sum --check --quiet || fail "kp-$version.tar.gz is not the file that was reviewed"
tar -xzf "$work/kp-$version.tar.gz" -C "$work"
bindings="$work/kp-$version/python/src/main.cpp"
sed -i -e '/"eval_async"/{n;s/self.eval()/self.evalAsync()/;}' \
    -e '/"eval_await"/{n;s/{ return/{ py::gil_scoped_release unlocked; return/;}' "$bindings"
[ "$(grep -c 'self.evalAsync(); }\|gil_scoped_release' "$bindings")" = 3 ] || fail "kp $version is not as expected"
pip --no-build-isolation --force-reinstall --no-deps "$work/kp-$version"
"$python" -c 'import kp; print("kp", kp.__version__, "is built")'
