-- $1 how long this transaction waits for a lock
select set_config('lock_timeout', $1, true)
