/* role.h: what a piece of text is, for whoever gives it a colour. */
#ifndef DS_ROLE_H
#define DS_ROLE_H

enum ds_role {
    DS_ROLE_PLAIN,
    DS_ROLE_SAME,
    DS_ROLE_DRIFT,
    DS_ROLE_UNSTABLE,
    DS_ROLE_DIM,
    DS_ROLE_HEAD
};

#endif
