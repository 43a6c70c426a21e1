-- J6: one row for all jobs of a worker.
-- lease until, id, epoch
update paidonce_worker set lease_until = ? where id = ? and epoch = ? and closed_at is null
