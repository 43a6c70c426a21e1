-- Token of the job's last adoption: a repeated one is recognised by it, together with the owner.
alter table paidonce_job add column adoption blob;
