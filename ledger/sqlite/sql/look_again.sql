-- On the line of the look before, if nothing came between.
-- tenant, job, number of the last line
update paidonce_event set looks = looks + 1 where tenant = ? and job = ? and n = ? and looks > 0
