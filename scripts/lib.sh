# Shared by the scripts: the project's root, and a complete .venv. Sourced, never run.
#
# A script calls `prepare requirements.txt` or `prepare requirements-dev.txt`. Then the working directory is the project's
# root, and .venv has what that file pins, and an editable install of Penstock. `prepare_local` adds the runtime of the local
# model, if it is available; `prepare_browser` adds the browser in which the page is tested. Four rules:
#
# 1. A .venv that these scripts made has a mark, which is created first. A .venv without the mark is moved aside.
# 2. A stamp is written when a step is done, and removed before the step begins. So a .venv without a valid stamp is
#    incomplete or out of date, and is made again. The stamp of the packages has the path of the root, too: in a copied
#    tree, .venv points to the old one.
# 3. The settings of pip and uv for reaching packages are kept (index, proxy, certificates, cache). Those that change what
#    is installed, or where, are not.
# 4. uv is used if it is installed, because it is quick. If it fails, pip is used.
#
# To start over, perhaps with another Python: rm -rf .venv

set -eu
unset CDPATH PYTHONHOME PYTHONPATH       # the last two would let packages from elsewhere in

root=$(dirname "$(dirname "$(readlink -f "$0")")")
lock=$root/.venv.lock
called_from=$PWD
cd "$root"

# Sets the environment that the functions below complete and use.
use_venv() {
    venv=$root/$1
    python=$venv/bin/python
    mark=$venv/.penstock
    packages_stamp=$venv/.penstock-packages
    project_stamp=$venv/.penstock-project
    local_stamp=$venv/.penstock-local
}

use_venv .venv

say() {
    printf 'penstock: %s\n' "$*" >&2
}

fail() {
    say "$@"
    exit 1
}

# Completes .venv for a requirements file. Takes a few hundredths of a second if it is complete.
prepare() {
    if is_whole "$1"; then
        return
    fi
    take_lock
    if ! is_whole "$1"; then             # another process may have made it meanwhile
        set_up "$1"
    fi
    release_lock
}

# There may be no wheel for this machine, or no network. Penstock serves without the local model, so neither is an error.
prepare_local() {
    if has_local || [ "${PENSTOCK_OFFLINE:-0}" != 0 ]; then
        return
    fi
    take_lock
    if ! has_local; then
        say "installing the runtime of the model on this machine"
        if said=$(PIP_RETRIES=${PIP_RETRIES:-1} install --only-binary :all: --require-hashes -r requirements-local.txt 2>&1) &&
            finds xllamacpp; then
            sum_packages requirements-local.txt >"$local_stamp"
        else
            say "it is not available, so there is no local model: $(printf '%s\n' "$said" | sed -n 's/^ERROR: //p;s/^ *× //p' | head -n 1)"
        fi
    fi
    release_lock
}

has_local() {
    stamped "$local_stamp" "$(sum_packages requirements-local.txt)"
}

# The page is tested in the system's browser. For root it is installed; for other users a message says how.
prepare_browser() {
    if has_browser; then
        return
    fi
    if [ "${PENSTOCK_OFFLINE:-0}" = 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing Chromium, in which the page is tested"
        install_browser >/dev/null 2>&1 || true
    fi
    if ! has_browser; then
        say "there is no Chromium, so the page is not tested.
    On Debian or Ubuntu: sudo apt install chromium
    If you have one that is not on PATH: PENSTOCK_CHROMIUM=/path/to/chromium $0"
    fi
}

# The same names as in tests/web/conftest.py.
has_browser() {
    for name in ${PENSTOCK_CHROMIUM:+"$PENSTOCK_CHROMIUM"} chromium chromium-browser google-chrome; do
        if command -v "$name" >/dev/null; then
            return
        fi
    done
    return 1
}

install_browser() (
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends chromium || { apt-get update && apt-get install -y --no-install-recommends chromium; }
)

# The tools that check the page's code, as package.json pins them, from npm. Sets `page_tools` to the folder of their
# commands; it stays empty without Node, or if the packages cannot be fetched. The folder is named after
# package.json's checksum, so a changed pin installs anew, and it is renamed into place when it is complete.
prepare_page_tools() {
    page_tools=
    if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
        say "there is no Node, so the page's code is not checked"
        return
    fi
    folder=$root/.cache/page-tools/$(cksum <package.json | tr ' ' '-')
    if [ ! -d "$folder" ] && [ "${PENSTOCK_OFFLINE:-0}" = 0 ]; then
        take_lock
        if [ ! -d "$folder" ]; then      # another process may have installed them while this one waited
            say "installing Prettier and TypeScript, which check the page's code"
            install_node_packages package.json "$folder" || true
        fi
        release_lock
    fi
    if [ -d "$folder" ]; then
        page_tools=$folder/node_modules/.bin
    else
        say "Prettier and TypeScript cannot be installed, so the page's code is not checked"
    fi
}

# Installs what a package.json pins into a folder, which appears when it is complete.
install_node_packages() {
    rm -rf "$2.partial"
    mkdir -p "$2.partial"
    cp "$1" "$2.partial"
    (cd "$2.partial" && npm install --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error) &&
        mv "$2.partial" "$2"
}

is_whole() {
    has_packages "$1" && has_project && finds penstock
}

# The development packages include those of the run time.
has_packages() {
    stamped "$packages_stamp" "$(sum_packages "$1")" && return
    [ "$1" = requirements.txt ] && stamped "$packages_stamp" "$(sum_packages requirements-dev.txt)"
}

has_project() {
    stamped "$project_stamp" "$(sum_project)"
}

stamped() {
    [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]
}

sum_packages() {
    printf '%s\n' "$root" | cat - "$1" | cksum
}

sum_project() {
    cksum <pyproject.toml
}

# Whether its Python starts and finds a package. Nothing is imported: an error in our code is no defect of .venv.
finds() {
    "$python" -I -c 'import sys; from importlib.util import find_spec; sys.exit(find_spec(sys.argv[1]) is None)' "$1" \
        2>/dev/null
}

# Does only the missing steps, so that the tests can be prepared while a gateway runs.
set_up() {
    if ! { has_packages "$1" && finds hatchling; }; then
        if ! { has_packages requirements.txt && finds hatchling; }; then
            make_venv
        fi
        say "installing what $1 pins"
        rm -f "$packages_stamp"
        install --require-hashes -r "$1" || fail "could not install the packages; the lines above say why"
        finds hatchling || fail "$ELSEWHERE"
        sum_packages "$1" >"$packages_stamp"
    fi
    rm -f "$project_stamp"
    install --no-deps --no-build-isolation --force-reinstall -e . || {
        rm -f "$packages_stamp"          # they may be the cause: start over next time
        fail "could not install Penstock into .venv; the lines above say why"
    }
    finds penstock || fail "$ELSEWHERE"
    # As pip does with a wheel: without it, a first start takes twice as long; with PYTHONDONTWRITEBYTECODE, every start.
    "$python" -I -m compileall -q src/penstock || say "could not compile src/penstock; starts take longer"
    sum_project >"$project_stamp"
}

ELSEWHERE='packages were installed, but not into .venv. Does a configuration file of pip or uv send them elsewhere?'

make_venv() {
    find_python
    if [ -e "$venv" ] || [ -L "$venv" ]; then
        if [ -f "$mark" ]; then
            rm -rf "$venv"
        else
            aside=${venv##*/}-$(date +%Y%m%d-%H%M%S)
            say "these scripts did not make the existing ${venv##*/}; it is now $aside"
            mv "$venv" "$aside"
        fi
    fi
    say "making ${venv##*/} with $base"
    mkdir "$venv"
    : >"$mark"
    "$base" -I -m venv --without-pip "$venv" || fail "could not make .venv; the lines above say why"
}

# Sets `base` to the first suitable Python. Never to one inside a .venv, which may be removed.
find_python() {
    if has_uv; then
        installer=uv
    else
        installer=pip
    fi
    no_pip=
    for name in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        status=0
        base=$("$name" -I -c "$CHOOSE" "$installer" 2>/dev/null) || status=$?
        if [ "$status" = 0 ] && [ -x "$base" ]; then
            return
        elif [ "$status" = 4 ]; then
            no_pip=$name
        fi
        if [ "$name" = "${PYTHON:-}" ]; then
            say "PYTHON=$PYTHON is not a Python 3.11 or later that can be used; looking for another"
        fi
    done
    if [ "$installer" = uv ] && base=$(uv python find --system '>=3.11' 2>/dev/null) && [ -x "$base" ]; then
        return
    fi
    if [ -n "$no_pip" ]; then
        fail "$no_pip is new enough, but has no pip (its ensurepip is missing).
    On Debian or Ubuntu: sudo apt install python3-venv
    On any system: install uv, and it is used instead."
    fi
    fail "Python 3.11 or later is needed, and none was found.
    Install one: with your package manager, from https://www.python.org/downloads/, or with uv python install 3.13
    If you have one that is not on PATH: PYTHON=/path/to/python3 $0"
}

CHOOSE='
import sys
if sys.version_info < (3, 11):
    sys.exit(3)
if sys.argv[1] == "pip":
    try:
        import ensurepip
    except ImportError:
        sys.exit(4)
print(getattr(sys, "_base_executable", None) or sys.executable)
'

has_uv() {
    uv --version >/dev/null 2>&1
}

install() (
    drop_settings
    if has_uv; then
        uv pip install --quiet --python "$python" "$@" && exit
        say "uv failed; trying pip"
    fi
    "$python" -I -m pip --version >/dev/null 2>&1 || "$python" -I -m ensurepip >/dev/null || exit
    "$python" -I -m pip install --quiet --no-input --disable-pip-version-check "$@"
)

# Rule 3. Variables override `user` and `require-hashes` in a configuration file of pip.
drop_settings() {
    for name in $(env | sed -n -e 's/^\(PIP_[A-Za-z0-9_]*\)=.*/\1/p' -e 's/^\(UV_[A-Za-z0-9_]*\)=.*/\1/p'); do
        case $name in
            *INDEX* | *LINKS* | *HOST* | *PROXY* | *CERT* | *TLS* | *KEYRING* | *CREDENTIALS*) ;;
            *TIMEOUT* | *RETRIES* | *CONCURRENT* | *OFFLINE* | *CACHE* | *CONFIG_FILE | *LINK_MODE) ;;
            *) unset "$name" ;;
        esac
    done
    export PIP_USER=0 PIP_REQUIRE_HASHES=0
}

# One set-up at a time. The lock is a link whose target names the process, so that it is made and filled in one step.
take_lock() {
    [ -w "$root" ] || fail "cannot write to $root, where .venv belongs"
    waiting=
    until ln -s "process:$$" "$lock" 2>/dev/null; do
        holder=$(readlink "$lock" || true)
        if [ -n "$holder" ] && ! kill -0 "${holder#process:}" 2>/dev/null; then
            rm -f "$lock"                # its process was killed
            continue
        fi
        if [ -z "$waiting" ]; then
            say "waiting for another set-up to end (if there is none: rm $lock)"
            waiting=yes
        fi
        sleep 1
    done
    trap release_lock EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

release_lock() {
    rm -f "$lock"
    trap - EXIT HUP INT TERM
}
