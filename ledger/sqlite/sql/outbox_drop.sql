-- tenant, job, result, place
delete from paidonce_outbox where tenant = ? and job = ? and result = ? and n = ?
