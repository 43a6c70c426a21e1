#!/usr/bin/env bash
# need.sh COMMAND...: makes sure that the tests find the programs they start
# (Postgres, RabbitMQ, PgBouncer), then runs COMMAND.
#
# The tests start servers of their own, on loopback, on free ports, in folders of
# their own, and stop only those. What can be missing is the programs. In order:
#
#   1. PAIDONCE_TEST_POSTGRES, PAIDONCE_TEST_AMQP name servers: they are used, and
#      nothing is installed for them.
#   2. root on Debian or Ubuntu: the packages are installed. Their system services
#      are not started.
#   3. a Docker daemon answers: the same happens in the container "test" of
#      docker-compose.yml, as root on Debian.
#   4. else: it says what to install, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'need: %s\n' "$*" >&2; }

have_postgres() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
have_rabbit() { command -v rabbitmq-server >/dev/null || [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]; }
have_pgbouncer() { command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]; }
have_cc() { command -v gcc >/dev/null || command -v clang >/dev/null || command -v "${CC:-cc}" >/dev/null; }

missing() {
	[ -n "${PAIDONCE_TEST_POSTGRES:-}" ] || have_postgres || echo postgresql
	[ -n "${PAIDONCE_TEST_AMQP:-}" ] || have_rabbit || echo rabbitmq-server
	[ -n "${PAIDONCE_TEST_POSTGRES:-}" ] || have_pgbouncer || echo pgbouncer
	have_cc || printf 'gcc\nlibc6-dev\n'
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
if [ -z "$want" ]; then exec "$@"; fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	say "installing $want with apt-get"
	install $want
	want=$(missing | xargs)
	if [ -n "$want" ]; then
		say "still missing after the installation: $want"
		exit 1
	fi
	exec "$@"
fi

if command -v docker >/dev/null && docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
	say "$want: not here; running in the container \"test\" of docker-compose.yml"
	exec docker compose run --rm --no-TTY test tools/need.sh "$@"
fi

say "the tests start these programs and cannot find them: $want"
say "  Debian, Ubuntu:  sudo apt-get install $want"
say '  macOS:           brew install postgresql rabbitmq pgbouncer'
say '  elsewhere:       start a Docker daemon (make test then runs in a container), or name servers:'
say '                   PAIDONCE_TEST_POSTGRES=postgres://… PAIDONCE_TEST_AMQP=amqp://… make test'
exit 1
