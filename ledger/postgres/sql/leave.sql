-- $1 id, $2 epoch
update paidonce.worker set closed_at = clock_timestamp()
where id = $1 and epoch = $2 and closed_at is null
