-- tenant, job, hash
select body from paidonce_chunk where tenant = ? and job = ? and hash = ? order by n
