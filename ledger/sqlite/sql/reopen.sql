-- tenant, job
update paidonce_job set generation = generation + 1, replays = 0, cancel = 0, result_id = null, done_at = null, state = 'ready'
where tenant = ? and id = ?
