-- Token of the job's last adoption: a repeated one is recognised by it, together with the owner.
alter table paidonce_job add column adoption blob;

-- Looks at an unknown job that the line stands for; 0: it is no look.
alter table paidonce_event add column looks integer not null default 0;
