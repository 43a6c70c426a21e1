-- Closes the epochs of workers whose lease is over: only then are their jobs taken
-- over or lapsed. A renewal that holds the row wins.
with w as materialized (
  select id from paidonce.worker where closed_at is null and lease_until <= clock_timestamp() for update skip locked
)
update paidonce.worker b set closed_at = clock_timestamp() from w where b.id = w.id
