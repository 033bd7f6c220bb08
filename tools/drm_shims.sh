#!/usr/bin/env bash
# drm_shims.sh MESA OUT: builds Mesa's drm-shims, with which its drivers open GPUs that are not there, for
# tools/driver_kernels.py. MESA is a source folder of Mesa 25.0 (deb.debian.org/debian/pool/main/m/mesa/mesa_25.0.7.orig.tar.xz).
# Needs gcc, libdrm's headers (Debian: libdrm-dev; LIBDRM=/folder/usr if they were unpacked there), Python with mako.
set -euo pipefail

mesa=$(realpath "$1") out=$(realpath -m "$2") libdrm=${LIBDRM:-/usr}
mkdir -p "$out" "$mesa/made/intel/dev" "$mesa/made/dev"
cd "$mesa"

# GPUs that the shim of AMD's does not have yet: as an RX 7900 XTX, but for the chip; and a kernel that is new enough.
python3 - <<'END'
import re
from pathlib import Path

path = Path("src/amd/drm-shim/amdgpu_devices.c")
text = path.read_text()
chips = {"gfx1201": ("GFX1201", 12, "0xc0001", "0x51", "12_0_0"), "gfx1200": ("GFX1200", 12, "0xc0000", "0x41", "12_0_0"),
         "navi33": ("NAVI33", 11, "0xb0002", "0x10", "11_0_0"), "gfx1103": ("PHOENIX", 11, "0xb0001", "0x01", "11_0_1")}
if '"gfx1201"' not in text:
    navi31 = re.search(r'   \{\n      \.name = "navi31",.*?\n   \},\n', text, re.S).group(0)
    for name, (chip, major, discovery, revision, family) in chips.items():
        entry = navi31.replace('"navi31"', f'"{name}"').replace("CHIP_NAVI31", f"CHIP_{chip}")
        entry = entry.replace("version_major = 11", f"version_major = {major}").replace("0xb0000", discovery)
        entry = entry.replace(".external_rev = 0x01", f".external_rev = {revision}").replace("GC_11_0_0", f"GC_{family}")
        text = text.replace(navi31, navi31 + entry)
    path.write_text(text)
END
sed -i 's/version_minor = 49/version_minor = 61/' src/amd/drm-shim/amdgpu_noop_drm_shim.c

python3 src/intel/dev/gen_wa_helpers.py src/intel/dev/mesa_defs.json made/intel/dev/intel_wa.h made/intel_wa.c
python3 src/intel/dev/intel_device_info_gen_h.py made/intel/dev/intel_device_info_gen.h
python3 src/intel/dev/intel_device_info_serialize_gen_c.py made/serialize.c
cp made/intel/dev/*.h made/dev
cp made/intel/dev/*.h made
echo '#define MESA_GIT_SHA1 ""' >made/git_sha1.h

defines=(_GNU_SOURCE HAVE_PTHREAD USE_GCC_ATOMIC_BUILTINS HAVE_TIMESPEC_GET HAVE_STRUCT_TIMESPEC HAVE_SECURE_GETENV HAVE_ENDIAN_H
    HAVE_MEMFD_CREATE HAVE_DLFCN_H HAVE_UNISTD_H HAVE_POSIX_MEMALIGN HAVE_FLOCK HAVE_GNU_QSORT_R HAVE_LIBDRM NDEBUG
    UTIL_ARCH_LITTLE_ENDIAN=1 UTIL_ARCH_BIG_ENDIAN=0 'PACKAGE_VERSION="25.0.7"' 'MESA_GIT_SHA1=""')
defines+=(HAVE___BUILTIN_{BSWAP32,BSWAP64,CLZ,CLZLL,CTZ,EXPECT,FFS,FFSLL,POPCOUNT,POPCOUNTLL,UNREACHABLE,TYPES_COMPATIBLE_P})
defines+=(HAVE_FUNC_ATTRIBUTE_{UNUSED,PACKED,CONST,PURE,WARN_UNUSED_RESULT,NORETURN,MALLOC,FORMAT})
includes=(made include src src/amd src/intel src/intel/dev src/intel/common src/freedreno src/util "$libdrm/include" "$libdrm/include/libdrm")
common=(src/drm-shim/{device,drm_shim}.c src/c11/impl/*posix.c)
common+=(src/util/{hash_table,set,ralloc,u_debug,os_file,rb_tree,vma,anon_file,log,u_printf,os_misc,u_call_once,simple_mtx,futex}.c)
common+=(src/util/{fast_urem_by_const,rand_xor,memstream,blob,u_process,build_id,mesa-sha1,sha1/sha1,bitscan}.c)

shim() {
    local name=$1 files=() file
    shift
    for file in "${common[@]}" "$@"; do [ ! -e "$file" ] || files+=("$file"); done
    gcc -O1 -w -fPIC -shared -fvisibility=hidden -std=gnu11 -Wl,-z,defs "${defines[@]/#/-D}" "${includes[@]/#/-I}" "${files[@]}" \
        -o "$out/${name}_shim.so" -ldl -lpthread -lm -l:libdrm.so.2
    echo "$out/${name}_shim.so"
}

shim amdgpu src/amd/drm-shim/amdgpu_{noop_drm_shim,devices}.c
shim freedreno src/freedreno/drm-shim/freedreno_noop.c
shim nouveau src/nouveau/drm-shim/nouveau_noop.c
shim intel src/intel/tools/intel_noop_drm_shim.c src/intel/dev/intel_{debug,device_info,hwconfig,kmd}.c src/intel/dev/{i915,xe}/*.c \
    src/intel/common/intel_{gem,engine,debug_identifier}.c src/intel/common/{i915,xe}/intel_{gem,engine}.c \
    src/intel/common/xe/intel_device_query.c made/{serialize,intel_wa}.c src/util/{parson,os_time}.c src/c11/impl/time.c
