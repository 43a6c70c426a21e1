#!/usr/bin/env bash
# need.sh COMMAND...: makes sure that the tests find the programs they start
# (Postgres, RabbitMQ, PgBouncer, moto for SQS), then runs COMMAND.
#
# The tests start servers of their own, on loopback, on free ports, in folders of
# their own, and stop only those. What can be missing is the programs. In order:
#
#   1. PAIDONCE_TEST_POSTGRES, PAIDONCE_TEST_AMQP, PAIDONCE_TEST_SQS name servers: they
#      are used, and nothing is installed for them.
#   2. root on Debian or Ubuntu: the packages are installed. Their system services
#      are not started.
#   3. a Docker daemon answers: the same happens in the container "test" of
#      docker-compose.yml, as root on Debian.
#   4. else: it says what to install, and fails.
#
# moto is a Python program: where there is a python3 that makes virtual environments,
# whoever runs this gets one in the cache folder, which internal/sqstest knows.
set -euo pipefail
cd "$(dirname "$0")/.."

# The version that internal/sqstest looks for, where os.UserCacheDir of Go is.
moto_version=5.2.1
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}
[ "$(uname)" != Darwin ] || cache=$HOME/Library/Caches
moto=$cache/paidonce/moto-$moto_version

say() { printf 'need: %s\n' "$*" >&2; }

have_postgres() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
have_rabbit() { command -v rabbitmq-server >/dev/null || [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]; }
have_pgbouncer() { command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]; }
have_moto() { [ -n "${PAIDONCE_MOTO_SERVER:-}" ] || command -v moto_server >/dev/null || [ -x "$moto/bin/moto_server" ]; }
have_venv() { command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null; }
have_cc() { command -v gcc >/dev/null || command -v clang >/dev/null || command -v "${CC:-cc}" >/dev/null; }

missing() {
	[ -n "${PAIDONCE_TEST_POSTGRES:-}" ] || have_postgres || echo postgresql
	[ -n "${PAIDONCE_TEST_AMQP:-}" ] || have_rabbit || echo rabbitmq-server
	[ -n "${PAIDONCE_TEST_POSTGRES:-}" ] || have_pgbouncer || echo pgbouncer
	[ -n "${PAIDONCE_TEST_SQS:-}" ] || have_moto || have_venv || printf 'python3\npython3-venv\n'
	have_cc || printf 'gcc\nlibc6-dev\n'
}

# install_moto: a virtual environment of its own. It cannot be moved, so the well-known
# name is a link, which is there when the installation is complete.
install_moto() {
	[ -z "${PAIDONCE_TEST_SQS:-}" ] || return 0
	! have_moto || return 0
	say "installing moto $moto_version with pip into $moto"
	local new log rc=0
	log=$(mktemp)
	mkdir -p "${moto%/*}"
	new=$(mktemp -d "$moto-XXXXXX")
	{
		python3 -m venv "$new" &&
			"$new/bin/python" -m pip install --quiet --disable-pip-version-check "moto[server]==$moto_version" &&
			ln -sfn "$new" "$moto"
	} </dev/null >"$log" 2>&1 || rc=$?
	if [ "$rc" != 0 ]; then
		say "pip could not install moto[server]==$moto_version, which the tests of SQS start:"
		tail -n 30 "$log" >&2
		say '  put a moto_server on the PATH, name it in PAIDONCE_MOTO_SERVER, or name a running emulator in PAIDONCE_TEST_SQS'
		rm -rf "$new"
	fi
	rm -f "$log"
	return "$rc"
}

# run COMMAND...: what apt-get installs is there.
run() {
	install_moto
	exec "$@"
}

# install PACKAGE...: apt-get, with service starts denied for as long as it runs.
# A policy that is there already is the administrator's and stays as it is.
install() {
	local log policy=/usr/sbin/policy-rc.d mine=
	log=$(mktemp)
	exec 9>/run/lock/paidonce-need && flock 9 # one at a time: the policy belongs to one
	if [ ! -e "$policy" ] && (set -o noclobber; printf '#!/bin/sh\nexit 101\n' >"$policy") 2>/dev/null; then
		mine=$policy
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
		chmod 755 "$policy"
	fi
	export DEBIAN_FRONTEND=noninteractive
	local apt=(apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
	local rc=0
	{
		compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || "${apt[@]}" update
		"${apt[@]}" install --yes --no-install-recommends "$@" ||
			{ "${apt[@]}" update && "${apt[@]}" install --yes --no-install-recommends "$@"; }
	} </dev/null >"$log" 2>&1 || rc=$?
	if [ -n "$mine" ]; then
		rm -f "$mine"
		trap - EXIT
	fi
	exec 9>&-
	[ "$rc" = 0 ] || { say "apt-get could not install $*:"; tail -n 30 "$log" >&2; }
	rm -f "$log"
	return "$rc"
}

command -v "${1:?need.sh COMMAND...}" >/dev/null || { say "$1 is not there: Go 1.26 or newer is needed, https://go.dev/dl"; exit 1; }

want=$(missing | xargs)
if [ -z "$want" ]; then run "$@"; fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	say "installing $want with apt-get"
	install $want
	want=$(missing | xargs)
	if [ -n "$want" ]; then
		say "still missing after the installation: $want"
		exit 1
	fi
	run "$@"
fi

if command -v docker >/dev/null && docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
	say "$want: not here; running in the container \"test\" of docker-compose.yml"
	exec docker compose run --rm --no-TTY test tools/need.sh "$@"
fi

say "the tests start these programs and cannot find them: $want"
say "  Debian, Ubuntu:  sudo apt-get install $want"
say '  macOS:           brew install postgresql rabbitmq pgbouncer python'
say '  elsewhere:       start a Docker daemon (make test then runs in a container), or name servers:'
say '                   PAIDONCE_TEST_POSTGRES=postgres://… PAIDONCE_TEST_AMQP=amqp://… PAIDONCE_TEST_SQS=http://… make test'
exit 1
