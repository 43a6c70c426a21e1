#!/usr/bin/env bash
# The proof in containers: a worker on RabbitMQ and one on SQS share a ledger and call a
# stand-in model server. Every key is submitted several times, some over both brokers;
# each must be done, and stand on the bill once. It builds, starts, asks the public
# commands, and takes everything down again, volumes included. It runs beside `make up`.
#
# The proofs with killed and frozen workers need no containers: go test ./internal/e2e
set -euo pipefail
shopt -s inherit_errexit
export LC_ALL=C
cd "$(dirname "$0")/.."

keys=20 # for each of three groups: over RabbitMQ, over SQS, over both
times=3
patience=120 # seconds

say() { printf 'e2e-compose: %s\n' "$*" >&2; }

if ! command -v docker >/dev/null || ! docker compose version >/dev/null 2>&1; then
	say 'this needs docker with its compose plugin (2.24 or newer); go test ./internal/e2e proves more, without containers'
	exit 1
fi
if ! docker info >/dev/null 2>&1; then
	say 'no Docker engine answers `docker info`; start one. go test ./internal/e2e proves more, without containers'
	exit 1
fi

compose() {
	docker compose --project-name paidonce-e2e --file docker-compose.yml --file tools/e2e-compose.yml \
		--profile worker --profile worker-sqs "$@"
}

finish() {
	local rc=$?
	if [ "$rc" != 0 ]; then compose logs --tail 50 >&2 || true; fi
	compose down --volumes --remove-orphans >&2 || rc=1
	exit "$rc"
}
trap finish EXIT

# tickets GROUP: a line of input for each of its keys. [key:…] marks the line on the bill.
tickets() {
	local i
	for ((i = 1; i <= keys; i++)); do
		printf '{"tenant":"acme","ticket":"%s-%s","revision":1,"thread":"[key:%s-%s] It was charged twice."}\n' "$1" "$i" "$1" "$i"
	done
}

# submit SERVICE GROUP: over the broker of that service's worker; prints the keys.
submit() { tickets "$2" | compose exec -T "$1" /worker submit --job ticket.summary; }

# field NAME: the values of a field of a JSON document, sorted, repeats kept.
field() { { grep -o "\"$1\": *\"[^\"]*\"" || true; } | sed 's/.*: *"//; s/"$//' | sort; }

done_keys() { compose exec -T worker /worker jobs list --state done --limit 1000 --json | field key; }
get() { compose exec -T models curl --silent --fail "$1"; }
bill() { get http://127.0.0.1:8081/bill | field prompt_key; }

# avoided: deliveries that the workers answered from the ledger.
avoided() {
	{ get http://worker:8080/metrics && get http://worker-sqs:8080/metrics; } |
		awk '/^paidonce_calls_avoided_total/ { n += $NF } END { print n + 0 }'
}

# until_prints WHAT WANT COMMAND: waits until the command prints what is wanted.
until_prints() {
	local n got
	for ((n = 0; n < patience; n++)); do
		got=$("$3")
		if [ "$got" = "$2" ]; then return 0; fi
		sleep 1
	done
	diff <(echo "$2") <(echo "$got") >&2 || say "$1: not within $patience s (< wanted, > found)"
	exit 1
}

say 'building and starting'
compose up --build --detach --wait --wait-timeout 600 >&2

submitted=
for ((n = 1; n <= times; n++)); do
	submitted+=$(submit worker rabbitmq; submit worker-sqs sqs; submit worker both; submit worker-sqs both)$'\n'
done
want=$(printf '%s' "$submitted" | sort -u)
tickets=$(for g in rabbitmq sqs both; do tickets "$g"; done | sed 's/.*\[key:\([^]]*\)\].*/\1/' | sort)

say "waiting for $((3 * keys)) jobs"
until_prints 'jobs list --state done has every key that was submitted' "$want" done_keys
until_prints 'every further message is answered from the ledger' "$((4 * keys * times - 3 * keys))" avoided
until_prints 'the bill has one line for each key' "$tickets" bill
say "each of $((3 * keys)) keys was submitted $times times or more, is done, and was paid for once"
