-- tenant, job, attempt
select codec, body from paidonce_response where tenant = ? and job = ? and attempt = ?
