-- J6: one row for all jobs of a worker.
-- $1 id, $2 epoch, $3 ttl
update paidonce.worker set lease_until = clock_timestamp() + $3::interval
where id = $1 and epoch = $2 and closed_at is null
