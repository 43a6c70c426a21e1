-- The answers of a generation that ended without a result.
-- tenant, job, generation
update paidonce_attempt set surplus = 1 where tenant = ? and job = ? and generation = ? and state = 'received'
