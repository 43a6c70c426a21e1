-- tenant, job
select body from paidonce_input where tenant = ? and job = ?
