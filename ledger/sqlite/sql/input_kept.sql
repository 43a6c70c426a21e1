-- tenant, job
select input_kept from paidonce_job where tenant = ? and id = ?
